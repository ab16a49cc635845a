"""Operators of ONNX Runtime's internal domain for channels last that other domains have, too: under their names there.

A quantized pool says by an attribute where its channels are, and a Resize knows no channels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx

from relayout.formats.onnx.wire import all_nodes
from relayout.graph.domains import INTERNAL_NHWC, MICROSOFT, RESIZE

WITH_ATTRIBUTE = ("QLinearAveragePool", "QLinearGlobalAveragePool")
ATTRIBUTE = "channels_last"
UNSAID = ("activation", "activation_params")  # attributes that say nothing where they are empty
RANK = 4  # axes of an image whose Resize has all operands in the order of the image
ROI, SCALES, SIZES = 1, 2, 3


class Internal(NamedTuple):
    """The changes made to operators of the internal domain."""

    renamed: bool = False  # whether any has got another name
    notes: tuple[str, ...] = ()  # the report's sentences on operators that are left


def name_known(proto: onnx.ModelProto) -> Internal:
    """Name operators of the internal domain as other domains do, in place, and import the domains."""
    nodes = [node for node in all_nodes(proto.graph.node) if node.domain == INTERNAL_NHWC]
    if not nodes:
        return Internal()
    constants = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    constants |= {node.output[0]: _dims(node) for node in proto.graph.node if node.op_type == "Constant"}
    for node in nodes:
        _name(node, constants)
    _import_domains(proto, nodes)
    if count := sum(node.domain == INTERNAL_NHWC for node in nodes):
        what = f"operators of {INTERNAL_NHWC}, with which ONNX Runtime loads no file: {count}"
        return Internal(count < len(nodes), (f"{what}; convert --to NCHW makes them the standard's",))
    remaining_opsets = [opset for opset in proto.opset_import if opset.domain != INTERNAL_NHWC]
    del proto.opset_import[:]
    proto.opset_import.extend(remaining_opsets)
    return Internal(renamed=True)


def _name(node: onnx.NodeProto, constants: Mapping[str, list[int]]) -> None:
    """Name one operator as another domain does, if one has it, and drop attributes that say nothing."""
    for index in reversed(range(len(node.attribute))):
        attribute = node.attribute[index]
        if attribute.name in UNSAID and not (attribute.s or attribute.floats):
            del node.attribute[index]
    if node.op_type in WITH_ATTRIBUTE:
        node.domain = MICROSOFT
        other_attributes = [attribute for attribute in node.attribute if attribute.name != ATTRIBUTE]
        del node.attribute[:]
        node.attribute.extend([*other_attributes, onnx.helper.make_attribute(ATTRIBUTE, 1)])
    elif node.op_type == RESIZE and _is_in_order(node, constants):
        node.domain = ""


def _import_domains(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    imported = {opset.domain: opset.version for opset in proto.opset_import}
    standard = imported.get("", imported.get("ai.onnx", 1))
    for domain, version in ((MICROSOFT, 1), (INTERNAL_NHWC, standard)):
        if domain not in imported and any(node.domain == domain for node in nodes):
            proto.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))


def _dims(constant: onnx.NodeProto) -> list[int]:
    value = next((attribute.t for attribute in constant.attribute if attribute.name == "value"), onnx.TensorProto())
    return list(value.dims)


def _is_in_order(node: onnx.NodeProto, constants: Mapping[str, list[int]]) -> bool:
    """Tell whether all operands of a Resize are in the image's order: ONNX Runtime moves those that are constant."""
    operands = [*node.input, *[""] * 4][: SIZES + 1]
    counted = [name for name in operands[SCALES:] if name and constants.get(name) != [0]]
    cropped = any(attribute.s == b"tf_crop_and_resize" for attribute in node.attribute)
    axes = any(attribute.name == "axes" for attribute in node.attribute)
    return not (cropped or axes) and all(constants.get(name) == [RANK] for name in counted)
