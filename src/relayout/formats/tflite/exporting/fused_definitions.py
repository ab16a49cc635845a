"""Definitions of convolutions of ONNX Runtime that have taken in what follows them: the operators that were there."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from relayout.graph.domains import INTERNAL_NHWC

FUSED = {("com.microsoft", "FusedConv"): "", (INTERNAL_NHWC, "Conv"): INTERNAL_NHWC}
"""A convolution with an activation -> the domain of the convolution alone."""
ACTIVATION, PARAMETERS = "activation", "activation_params"
ADDED = 3
"""The operand that is added to the result before the activation."""
PARAMETERS_OF: Mapping[str, tuple[str, ...]] = {
    "": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""Activation -> what its parameters are, in order."""
OPERANDS = ("Clip",)
"""Activations whose parameters are operands; those of others are attributes."""


def definition_of(node: ir.Node, imports: Mapping[str, int]) -> onnx.FunctionProto | None:
    """Return the function that a fused convolution is; None of any other node, or where its activation is not known.

    Args:
        node: the node.
        imports: the model's: domain -> version.
    """
    domain = FUSED.get((node.domain, node.op_type))
    activation = node.attributes.get_string(ACTIVATION, "")
    parameters = list(node.attributes.get_floats(PARAMETERS, []))
    if domain is None or (not activation and domain == node.domain):
        return None
    named = PARAMETERS_OF.get(activation)
    if named is None or len(named) != len(parameters):
        return None
    names = [f"i{slot}" if value is not None else "" for slot, value in enumerate(node.inputs)]
    kept = [each for name, each in node.attributes.items() if name not in (ACTIVATION, PARAMETERS)]
    made = [onnx.helper.make_node("Conv", names[:ADDED], ["conv"], domain=domain)]
    made[0].attribute.extend(map(ir.serde.serialize_attribute, kept))
    if any(names[ADDED:]):
        made.append(onnx.helper.make_node("Add", ["conv", names[ADDED]], ["sum"]))
    last = made[-1].output[0]
    given = list(zip(named, parameters, strict=True))
    if not activation:
        made[-1].output[0] = "y"
    elif activation in OPERANDS:
        made += [onnx.helper.make_node("Constant", [], [name], value_float=number) for name, number in given]
        made.append(onnx.helper.make_node(activation, [last, *named], ["y"]))
    else:
        made.append(onnx.helper.make_node(activation, [last], ["y"]))
        made[-1].attribute.extend(onnx.helper.make_attribute(name, number) for name, number in given)
    opsets = [onnx.helper.make_opsetid(each, imports.get(each, 1)) for each in dict.fromkeys(("", domain))]
    inputs = [name or f"absent{slot}" for slot, name in enumerate(names)]
    return onnx.helper.make_function("", "", inputs, ["y"], made, opsets)
