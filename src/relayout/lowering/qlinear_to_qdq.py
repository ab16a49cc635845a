"""Operators on integers as quantized units: QLinearConv becomes DequantizeLinear, Conv and QuantizeLinear.

    y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)
    y = Q(Conv(D(x, xs, xz), D(w, ws, wz), D(b, xs ws)), ys, yz)        D, Q: DequantizeLinear, QuantizeLinear

The two are the same by definition. A target that reads quantized units reads both then.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import MICROSOFT
from relayout.graph.subgraphs import all_nodes, take_over
from relayout.lowering.constants import Constants

WIDTHS = {"x": 3, "y": 2, "b": 1}  # how many inputs each letter of a `Form` stands for


class Form(NamedTuple):
    """The operands of an operator on integers."""

    op_type: str  # the operator that it computes on real numbers
    # its inputs in order: an operand's integers, scale and zero point (`x`; `*`: those of all operands), the scale and
    # the zero point of the result (`y`), and a bias in steps of the product of the first two operands' scales (`b`)
    inputs: str
    dropped: tuple[str, ...] = ()  # attributes that the operator on real numbers does not have
    # the axis along which the second operand's scales may lie, of its attributes and rank
    channel: Callable[[ir.Node, int], int] = lambda _, __: 0

    def places(self, node: ir.Node) -> dict[str, list[list[ir.Value | None]]]:
        """Return a node's inputs by the letter of each."""
        inputs, values = iter(node.inputs), {kind: list[list[ir.Value | None]]() for kind in WIDTHS}
        for kind in self.inputs.replace("*", "x" * ((len(node.inputs) - 2) // 3)):
            values[kind].append([next(inputs, None) for _ in range(WIDTHS[kind])])
        return values


FORMS: Mapping[tuple[str, str], Form] = {  # domain and operator -> how it is read
    ("", "QLinearConv"): Form("Conv", "xxyb"),
    ("", "QLinearMatMul"): Form("MatMul", "xxy", channel=lambda _, rank: rank - 1),
    (MICROSOFT, "QGemm"): Form("Gemm", "xxby", channel=lambda node, _: int(not node.attributes.get_int("transB", 0))),
    (MICROSOFT, "QLinearAdd"): Form("Add", "xxy"),
    (MICROSOFT, "QLinearMul"): Form("Mul", "xxy"),
    (MICROSOFT, "QLinearSigmoid"): Form("Sigmoid", "xy"),
    (MICROSOFT, "QLinearLeakyRelu"): Form("LeakyRelu", "xy"),
    (MICROSOFT, "QLinearSoftmax"): Form("Softmax", "xy", dropped=("opset",)),
    (MICROSOFT, "QLinearAveragePool"): Form("AveragePool", "xy", dropped=("channels_last",)),
    (MICROSOFT, "QLinearGlobalAveragePool"): Form("GlobalAveragePool", "xy", dropped=("channels_last",)),
    (MICROSOFT, "QLinearReduceMean"): Form("ReduceMean", "xy"),
    (MICROSOFT, "QLinearConcat"): Form("Concat", "y*"),
}
REFUSED = ({"channels_last": 1}, {"ceil_mode": 1, "count_include_pad": 1})
"""Attributes that together say of a node that it is not the standard's operator. A pool of integers with the last two
counts the elements behind the border, too, that its last window reaches."""


def qlinear_to_qdq(model: ir.Model) -> dict[str, int]:
    """Write operators on integers as quantized units, in place.

    Returns:
        Operator -> how many of it are units now.
    """
    counts: Counter[str] = Counter()
    nodes = [node for node in all_nodes(model.graph) if _form(node) is not None]
    if not nodes:
        return {}
    writer = _Writer(Constants(model))
    for node in nodes:
        form = _form(node)
        if form is not None and writer.write(node, form):
            counts[node.op_type] += 1
    return dict(sorted(counts.items()))


def _form(node: ir.Node) -> Form | None:
    form = FORMS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    is_refused = any(
        all(node.attributes.get_int(name, 0) == value for name, value in attributes.items()) for attributes in REFUSED
    )
    return None if is_refused else form


class _Writer:
    def __init__(self, constants: Constants) -> None:
        self.constants, self.names = constants, constants.names

    def write(self, node: ir.Node, form: Form) -> bool:
        """Write one node; False where its bias cannot be read."""
        graph = node.graph
        if not isinstance(graph, ir.Graph):
            return False
        values = form.places(node)
        bias = self._bias(node, values)
        if bias is None:
            return False
        reals = [self._dequantized(node, read, form, place) for place, read in enumerate(values["x"])]
        attributes = [attribute for name, attribute in node.attributes.items() if name not in form.dropped]
        (y,), ((scale, zero),) = node.outputs, values["y"]
        real = ir.val(self.names.unique(f"{y.name}/real"), _type_of(scale), y.shape)
        real_node = ir.Node("", form.op_type, [*reals, *bias], attributes, outputs=[real], name=node.name)
        graph.insert_before(node, real_node)
        stem = self.names.unique(f"{y.name}/QuantizeLinear")
        quantize = ir.Node("", "QuantizeLinear", [real, scale, zero], [], name=stem)
        graph.insert_before(node, quantize)
        take_over(quantize.outputs[0], y)
        graph.remove(node, safe=True)
        return True

    def _dequantized(self, node: ir.Node, read: Sequence[ir.Value | None], form: Form, place: int) -> ir.Value:
        integers, scale, _ = read
        assert integers is not None
        rank = 0 if integers.shape is None else len(integers.shape)
        per_channel = scale is not None and scale.shape is not None and len(scale.shape) == 1 and scale.shape[0] != 1
        axis = [ir.AttrInt64("axis", form.channel(node, rank))] if place == 1 and per_channel else []
        return self._node(node, read, axis, integers)

    def _bias(self, node: ir.Node, values: Mapping[str, Sequence[Sequence[ir.Value | None]]]) -> list[ir.Value] | None:
        """Return the bias as real numbers, if there is one; None: its steps are computed."""
        integers = next((integers for (integers,) in values["b"]), None)
        if integers is None:
            return []
        scales = [self.constants.array(scale) for _, scale, _ in values["x"]]
        if any(scale is None for scale in scales):
            return None
        steps = np.multiply(*(scale.astype(np.float64) for scale in scales if scale is not None)).reshape(-1)
        rounded: NDArray[np.generic] = steps.astype(np.float32).reshape(steps.shape if steps.size > 1 else ())
        product = self.constants.new(f"{integers.name}/steps", rounded)
        axis = [ir.AttrInt64("axis", 0)] if steps.size > 1 else []
        return [self._node(node, [integers, product], axis, integers)]

    def _node(
        self, before: ir.Node, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], like: ir.Value
    ) -> ir.Value:
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        result = ir.val(f"{like.name}/dequantized", _type_of(inputs[1]), like.shape)
        return self.constants.insert(before, "DequantizeLinear", operands, result, *attributes)


def _type_of(scale: ir.Value | None) -> ir.DataType:
    """Return the type of the real numbers that belong to a scale."""
    return ir.DataType.FLOAT if scale is None or scale.dtype is None else scale.dtype
