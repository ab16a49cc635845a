"""Types and shapes of what a node gives, where ONNX's shape inference, which knows the standard's operators, says none.

A signature says them: an output has the extents that its axes have on the inputs. Where it does not (an axis that is
joined or pooled), an operator of the standard that computes the same shape does, or a function beside the rule
(`@rule(..., shapes=...)`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx
import onnx_ir as ir

from relayout import isolation
from relayout.errors import ReadError, RelayoutError
from relayout.graph.walks import known_tensor
from relayout.layout import Dim
from relayout.rules.facts import rule_of
from relayout.rules.internal_nhwc import is_internal
from relayout.rules.operator import WRAPPING, Operator, Output, Shape
from relayout.rules.registry import find
from relayout.rules.signature import Signature

MOST_ELEMENTS = 64  # of a constant that shape inference may look at: axes, pads, sizes
REAL = frozenset(("AveragePool", "GlobalAveragePool", "ReduceMean"))
"""Operators of the standard that take real numbers where their twins take quantized ones."""


class OutputRow(NamedTuple):
    """The places where the type and the shape of an operator's first output are read."""

    typed: tuple[int, ...] = (0,)  # the inputs of the output's element type; the first that is given tells it
    like: tuple[str, int] | None = None  # an operator of the standard whose output has this shape, and its version
    operands: slice | tuple[int, ...] | None = None  # the inputs that it takes; None: all
    kind: ir.DataType | None = None  # the element type, where no input tells it
    # whether it has the channels last, in its first operand and in what it gives; a node may say so of itself
    last: bool = False
    sum: int | None = None  # another output of the same type and shape: what was added up
    # the (input, axis) of which each extent is, None for one that nothing tells; of several such lists the first whose
    # inputs have as many axes
    extents: tuple[tuple[tuple[int, int] | None, ...], ...] = ()
    # output -> the same of another output of this type
    others: tuple[tuple[int, tuple[tuple[int, int] | None, ...]], ...] = ()


_AS_INPUT = """
    BiasGelu ConvTransposeWithDynamicPads CropAndResize DynamicQuantizeLSTM DynamicQuantizeMatMul FastGelu FusedGemm
    FusedMatMul Gelu MatMulBnb4 MatMulNBits QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid
    QLinearSoftmax QuickGelu TransposeMatMul
"""
CONTRIBUTED: Mapping[str, OutputRow] = {
    **dict.fromkeys(_AS_INPUT.split(), OutputRow()),
    "DequantizeLinear": OutputRow((1,), ("DequantizeLinear", 21)),
    "FusedConv": OutputRow((0,), ("Conv", 11), (0, 1)),
    "GatherND": OutputRow((0,), ("GatherND", 13)),
    "GridSample": OutputRow((0,), ("GridSample", 16)),
    "GroupQueryAttention": OutputRow(
        (0,),
        extents=(((0, 0), (1, 1), (0, 2)),),
        others=((1, ((0, 0), None, None, None)), (2, ((0, 0), None, None, None))),
    ),
    "Inverse": OutputRow((0,), ("Identity", 16)),
    "MatMulInteger16": OutputRow((), kind=ir.DataType.INT32),
    "MatMulIntegerToFloat": OutputRow((2,)),
    "NhwcMaxPool": OutputRow((0,), ("MaxPool", 12), last=True),
    "MultiHeadAttention": OutputRow((0,), extents=(((0, 0), (0, 1), (2, 2)), ((0, 0), (0, 1), (0, 2)))),
    "Pad": OutputRow((0,), ("Pad", 13)),
    "QGemm": OutputRow((8, 1)),
    "QLinearAveragePool": OutputRow((0,), ("AveragePool", 11), (0,)),
    "QLinearConcat": OutputRow((2,), ("Concat", 13), slice(2, None, 3)),
    "QLinearConv": OutputRow((7,), ("QLinearConv", 10)),
    "QLinearGlobalAveragePool": OutputRow((0,), ("GlobalAveragePool", 1), (0,)),
    "QLinearReduceMean": OutputRow((0,), ("ReduceMean", 13), (0,)),
    "QLinearWhere": OutputRow((1,)),
    "QuantizeLinear": OutputRow((2,), ("QuantizeLinear", 21), kind=ir.DataType.UINT8),
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), OutputRow((0,), ("Identity", 16), (0,), sum=3)
    ),
    "RotaryEmbedding": OutputRow((0,), ("Identity", 16), (0,)),
    "Trilu": OutputRow((0,), ("Trilu", 14)),
}
"""Operators of `com.microsoft`; of others the shape is read off the signature, and the type stays unknown."""

_AS_INPUT = """
    Affine GroupNormalization ImageScaler ParametricSoftplus Scale ScaledTanh SimplifiedLayerNormalization
"""
UNINFERRED: Mapping[str, OutputRow] = {
    **dict.fromkeys(_AS_INPUT.split(), OutputRow((0,), ("Identity", 16), (0,))),
    "Crop": OutputRow(),
}
"""Operators of the standard's domain that ONNX has no shape inference for: GroupNormalization, and those that it does
not list."""
UNKNOWN = ""  # an extent that nothing tells


def outputs_of(
    node: ir.Node,
    opsets: Mapping[str, int],  # the model's: domain -> version
) -> list[Output]:
    """Element type and shape of each output of a node, as far as its inputs tell.

    None is a type or rank that is not known, `UNKNOWN` an extent.
    """
    standard = node.domain in ("", "ai.onnx")
    version = opsets.get("" if standard else node.domain, 1)
    rule = find(("" if standard else node.domain, node.op_type))
    operator = Operator(node, version, tuple(map(_shape, node.inputs)), tuple(map(_shape, node.outputs)))
    table = UNINFERRED if standard else CONTRIBUTED if node.domain == "com.microsoft" else {}
    row = table.get(node.op_type)
    if rule is not None and rule.shapes is not None:
        return [*rule.shapes(operator), *[(None, None)] * len(node.outputs)][: len(node.outputs)]
    if standard and row is None:
        return list(_by_schema(operator, node.op_type, version, node.inputs))
    if is_internal(node):
        version = opsets.get("", 1)
        return list(_by_schema(operator, node.op_type, version, node.inputs, last=True))[:1]
    if row is None:
        return [(None, shape) for shape in _by_letters(operator, known=False)]
    return _by_row(operator, row)


def _by_row(operator: Operator, row: OutputRow) -> list[Output]:
    """Return the outputs as a row of a table tells them."""
    node = operator.node
    kind = next((value.dtype for slot in row.typed for value in node.inputs[slot : slot + 1] if value), row.kind)
    last = row.last or _has_channels_last(node)
    if row.like is not None:
        output = next(_by_schema(operator, *row.like, _operands(node, row.operands), last), (None, None))
        if output[1] is not None:
            alike = (0, row.sum)
            return [(kind, output[1]) if slot in alike else (None, None) for slot in range(len(node.outputs))]
    for places in row.extents:
        if all(operator.rank(place[0]) == len(places) for place in places if place):
            shapes = {slot: _read(operator, other) for slot, other in ((0, places), *row.others)}
            return [(kind, shapes[slot]) if slot in shapes else (None, None) for slot in range(len(node.outputs))]
    by_letters = _by_letters(operator, known=row.like is None)
    return [(None if slot else kind, shape) for slot, shape in enumerate(by_letters)]


def _constants(named_values: Sequence[tuple[str, ir.Value]]) -> Iterator[tuple[str, onnx.TensorProto]]:
    for name, value in named_values:
        tensor = known_tensor(value)
        if tensor is not None and tensor.size <= MOST_ELEMENTS:
            yield name, ir.serde.serialize_tensor(tensor)


def _type(shape: Shape | None, kind: ir.DataType | None) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(int(kind or 0), shape and [dim or None for dim in shape])


def _read(operator: Operator, places: Sequence[tuple[int, int] | None]) -> Shape:
    """Return extents by the (input, axis) of which each is."""
    return tuple((operator.shape(place[0]) or ())[place[1]] if place else UNKNOWN for place in places)


def _has_channels_last(node: ir.Node) -> bool:
    """Return whether a node says so of itself; what is no integer is the file's mistake, and says nothing."""
    said = node.attributes.get("channels_last")
    return said is not None and said.type == ir.AttributeType.INT and not said.is_ref() and bool(said.as_int())


def _shape(value: ir.Value | None) -> Shape | None:
    if value is None or type(value.type) in WRAPPING:
        return None
    shape = value.shape if value.const_value is None else value.const_value.shape
    return None if shape is None else tuple(dim if isinstance(dim, int) else dim.value or UNKNOWN for dim in shape)


def _operands(node: ir.Node, slots: slice | tuple[int, ...] | None) -> Sequence[ir.Value | None]:
    if slots is None or isinstance(slots, slice):
        return node.inputs[slots or slice(None)]
    return [node.inputs[slot] for slot in slots if slot < len(node.inputs)]


def _by_schema(
    operator: Operator, op_type: str, version: int, operands: Sequence[ir.Value | None], last: bool = False
) -> Iterator[Output]:
    """Yield the outputs of the standard's operator for these inputs; nothing where it refuses them or does not exist.

    With `last`, the first operand and the result have the channels last, which the standard's have in the second place.
    """
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return
    named_values = [(f"i{slot}", value) for slot, value in enumerate(operands) if value is not None]
    if any(value.dtype is None for _, value in named_values):
        return
    # It has no kernel for integers of 8 bits, which here stand for real numbers.
    kind = ir.DataType.FLOAT if op_type in REAL else None
    shapes = {name: _shape(value) for name, value in named_values}
    first = shapes.get("i0")
    if last and first:
        shapes["i0"] = (*first[:1], *first[-1:], *first[1:-1])
    types = {name: _type(shapes[name], kind or value.dtype) for name, value in named_values}
    data = dict(_constants(named_values))
    node = _standard_node(operator, schema, operands)
    try:
        output_types = isolation.infer_node_outputs(schema, node, types, data, version)
    except ReadError:  # it crashes
        raise
    except Exception:  # onnx raises types of its own: the node is not what its operator allows
        return
    for name in node.output:
        tensor = output_types[name].tensor_type if name in output_types else None
        kind = ir.DataType(tensor.elem_type) if tensor is not None and tensor.elem_type else None
        dims = _dims(tensor)
        yield kind, (*dims[:1], *dims[2:], *dims[1:2]) if last and dims else dims


def _standard_node(
    operator: Operator, schema: onnx.defs.OpSchema, operands: Sequence[ir.Value | None]
) -> onnx.NodeProto:
    """Return the standard's node with the attributes that it knows: inputs `i0 i1 …`, outputs `o0 o1 …`."""
    names = ["" if value is None else f"i{slot}" for slot, value in enumerate(operands)]
    results = [f"o{slot}" for slot in range(min(len(operator.outputs), schema.max_output))]
    node = onnx.NodeProto(op_type=schema.name, input=names, output=results)
    for name, attribute in operator.attributes.items():
        if name in schema.attributes:
            node.attribute.append(ir.serde.serialize_attribute(attribute))
    return node


def _dims(tensor: onnx.TypeProto.Tensor | None) -> Shape | None:
    if tensor is None or not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim)


def _by_letters(operator: Operator, known: bool) -> Iterator[Shape | None]:
    """The first output has the extents that its axes have on the inputs; of others the rank is known.

    It has them if the axes are `known` to keep their extents: an operator may reduce one to 1. An axis that is cut or
    joined never does.
    """
    fact = _signature(operator)
    if fact is None:
        return
    dims_by_letter: dict[str, set[Dim]] = {}
    for letters, shape in zip(fact.inputs, operator.inputs, strict=False):
        for letter, dim in zip(letters or (), shape or (), strict=False):
            dims_by_letter.setdefault(letter, set()).add(dim)
    for slot, letters in enumerate(fact.outputs):
        plain = known and not slot
        yield letters and tuple(
            _stretched(dims_by_letter.get(letter, set())) if plain and letter not in fact.whole else UNKNOWN
            for letter in letters
        )


def _stretched(dims: set[Dim]) -> Dim:
    """Return the extent of operands that broadcast against each other."""
    larger = dims - {1}
    if not larger:
        return 1 if dims else UNKNOWN
    static = [dim for dim in larger if isinstance(dim, int)]
    return static[0] if len(static) == 1 else next(iter(larger)) if len(larger) == 1 else UNKNOWN


def _signature(operator: Operator) -> Signature | None:
    """Return a node's signature, also where its rule reads the rank of the output: then that of its largest input."""
    rule = rule_of(operator)
    if rule is None:
        return None
    rank = max((len(shape) for shape in operator.inputs if shape is not None), default=0)
    supposed = replace(operator, outputs=((UNKNOWN,) * rank, *operator.outputs[1:]))
    for each in (operator, supposed):
        try:
            fact = rule.facts(each)
        except (IndexError, TypeError, ValueError, RelayoutError):
            continue  # what is wrong with a rule of a user is said when it is asked of what is known
        if isinstance(fact, Signature):
            return fact
    return None
