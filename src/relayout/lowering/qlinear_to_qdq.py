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

Slots = tuple[int, int, int]  # places of integers, their scale and their zero point among a node's inputs


class Form(NamedTuple):
    """The operands of an operator on integers."""

    op_type: str  # the operator that it computes on real numbers
    # of the operands the first place, and the one behind the last, None for all: integers, scale and zero point of each
    places: tuple[int, int | None]
    result: tuple[int, int]  # the places of the result's scale and zero point
    bias: int = -1  # the place of a bias in steps of the product of the first two operands' scales; -1: there is none
    dropped: tuple[str, ...] = ()  # attributes that the operator on real numbers does not have
    # the axis along which the second operand's scales may lie, of its attributes and rank
    channel: Callable[[ir.Node, int], int] = lambda _, __: 0

    def operands(self, count: int) -> Sequence[Slots]:
        """Return the places of each operand among so many inputs."""
        begin, end = self.places
        return [(place, place + 1, place + 2) for place in range(begin, count if end is None else end, 3)]


_UNARY, _BINARY = (0, 3), (0, 6)
FORMS: Mapping[tuple[str, str], Form] = {  # domain and operator -> how it is read
    ("", "QLinearConv"): Form("Conv", _BINARY, (6, 7), bias=8),
    ("", "QLinearMatMul"): Form("MatMul", _BINARY, (6, 7), channel=lambda _, rank: rank - 1),
    (MICROSOFT, "QGemm"): Form(
        "Gemm", _BINARY, (7, 8), bias=6, channel=lambda node, _: int(not node.attributes.get_int("transB", 0))
    ),
    (MICROSOFT, "QLinearAdd"): Form("Add", _BINARY, (6, 7)),
    (MICROSOFT, "QLinearMul"): Form("Mul", _BINARY, (6, 7)),
    (MICROSOFT, "QLinearSigmoid"): Form("Sigmoid", _UNARY, (3, 4)),
    (MICROSOFT, "QLinearLeakyRelu"): Form("LeakyRelu", _UNARY, (3, 4)),
    (MICROSOFT, "QLinearSoftmax"): Form("Softmax", _UNARY, (3, 4), dropped=("opset",)),
    (MICROSOFT, "QLinearAveragePool"): Form("AveragePool", _UNARY, (3, 4), dropped=("channels_last",)),
    (MICROSOFT, "QLinearGlobalAveragePool"): Form("GlobalAveragePool", _UNARY, (3, 4), dropped=("channels_last",)),
    (MICROSOFT, "QLinearReduceMean"): Form("ReduceMean", _UNARY, (3, 4)),
    (MICROSOFT, "QLinearConcat"): Form("Concat", (2, None), (0, 1)),
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
        operands = form.operands(len(node.inputs))
        bias = self._bias(node, form, operands)
        if bias is None:
            return False
        reals = [self._dequantized(node, slots, form, place) for place, slots in enumerate(operands)]
        attributes = [attribute for name, attribute in node.attributes.items() if name not in form.dropped]
        y = node.outputs[0]
        scale, zero = (_at(node, place) for place in form.result)
        real = ir.val(self.names.unique(f"{y.name}/real"), _type_of(scale), y.shape)
        real_node = ir.Node("", form.op_type, [*reals, *bias], attributes, outputs=[real], name=node.name)
        graph.insert_before(node, real_node)
        stem = self.names.unique(f"{y.name}/QuantizeLinear")
        quantize = ir.Node("", "QuantizeLinear", [real, scale, zero], [], name=stem)
        graph.insert_before(node, quantize)
        take_over(quantize.outputs[0], y)
        graph.remove(node, safe=True)
        return True

    def _dequantized(self, node: ir.Node, slots: Slots, form: Form, place: int) -> ir.Value:
        integers, scale, zero = (_at(node, slot) for slot in slots)
        assert integers is not None
        rank = 0 if integers.shape is None else len(integers.shape)
        per_channel = scale is not None and scale.shape is not None and len(scale.shape) == 1 and scale.shape[0] != 1
        axis = [ir.AttrInt64("axis", form.channel(node, rank))] if place == 1 and per_channel else []
        return self._node(node, [integers, scale, zero], axis, integers)

    def _bias(self, node: ir.Node, form: Form, operands: Sequence[Slots]) -> list[ir.Value] | None:
        """Return the bias as real numbers, if there is one; None: its steps are computed."""
        integers = _at(node, form.bias) if form.bias >= 0 else None
        if integers is None:
            return []
        scales = [self.constants.array(_at(node, scale)) for _, scale, _ in operands]
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
        stem = self.names.unique(f"{like.name}/dequantized")
        value = ir.val(stem, _type_of(inputs[1]), like.shape)
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        node = ir.Node("", "DequantizeLinear", operands, attributes, outputs=[value], name=f"{stem}/DequantizeLinear")
        assert isinstance(before.graph, ir.Graph)
        before.graph.insert_before(before, node)
        return value


def _at(node: ir.Node, slot: int) -> ir.Value | None:
    return node.inputs[slot] if 0 <= slot < len(node.inputs) else None


def _type_of(scale: ir.Value | None) -> ir.DataType:
    """Return the type of the real numbers that belong to a scale."""
    return ir.DataType.FLOAT if scale is None or scale.dtype is None else scale.dtype
