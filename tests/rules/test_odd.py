"""No rule fails, whatever a node looks like: it says what fits the operands, or nothing."""

from __future__ import annotations

import random

import numpy as np
import onnx_ir as ir
import pytest

from relayout.layout import Dim, Extent
from relayout.rules import Operator, Permuted, Placement, Regrouped, Signature, facts, registry

SHAPES: list[tuple[Dim, ...] | None] = [
    None,
    (),
    (1,),
    (3,),
    ("n",),
    (0,),
    (2, 3),
    ("n", 3),
    (1, 0),
    (2, 3, 4),
    (2, 3, 4, 5),
    ("n", 3, "h", "w"),
    (1, 2, 3, 4, 5),
    (2,) * 9,
]
ATTRIBUTES: dict[str, list[object]] = {
    "axis": [0, 1, -1, -5, 9, 1.5, "x"],
    "axes": [[0], [-1, 1], [7], [], 0],
    "batch_axis": [0, 1],
    "batch_dims": [0, 1, 3, -1],
    "block_size": [0, 2],
    "channels_last": [0, 1],
    "equation": ["ij,jk->ik", "...i", "", "ii->i", "a->b", 4],
    "group": [0, 1, 3],
    "is_test": [0, 1],
    "k": [-1, 2],
    "keepdims": [0, 1],
    "layout": [0, 1],
    "pads": [[0, 0], [1, 2, 3, 4], []],
    "perm": [[0], [1, 0], [0, 0], [3, 2, 1, 0]],
    "reduction": ["none", "mean"],
    "seed": [1.0],
    "shape": [[2, 3], []],
    "sorted": [0, 1],
    "spatial": [0, 1],
    "starts": [[0], [1, 2]],
    "time_axis": [0, 1],
    "transA": [0, 1],
    "transB": [0, 1],
}
VERSIONS = (1, 5, 6, 7, 9, 10, 11, 12, 13, 18, 21, 23, 26)


def odd(domain: str, op_type: str, draw: random.Random) -> Operator:
    """A node with any number of inputs and outputs of any shapes, and any attributes."""
    inputs = [operand(f"i{slot}", draw) for slot in range(draw.randrange(10))]
    outputs = [operand(f"o{slot}", draw) or ir.Value(name="") for slot in range(draw.randrange(1, 5))]
    chosen = [name for name in ATTRIBUTES if draw.random() < 0.3]
    attributes = [
        ir.convenience.convert_attribute(name, value)
        for name in chosen
        for value in [draw.choice(ATTRIBUTES[name])]
        if value != []
    ]
    node = ir.Node(domain, op_type, inputs, attributes, outputs=outputs)

    def shape(value: ir.Value | None) -> tuple[Dim, ...] | None:
        if value is None or value.shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape)

    return Operator(node, draw.choice(VERSIONS), tuple(map(shape, inputs)), tuple(map(shape, outputs)))


def operand(name: str, draw: random.Random) -> ir.Value | None:
    kind = draw.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        array = np.array([draw.randrange(-6, 6) for _ in range(draw.randrange(5))], draw.choice((np.int64, np.int32)))
        return ir.Value(name=name, shape=ir.Shape(array.shape), const_value=ir.Tensor(array))
    shape = draw.choice(SHAPES)
    return ir.Value(name=name, shape=None if shape is None else ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))


@pytest.mark.parametrize("key", registry(), ids=lambda key: key[1])
@pytest.mark.sampled(every=3)
def test_odd_nodes_are_barriers_or_fit(key: tuple[str, str]) -> None:
    draw = random.Random(str(key))
    for _ in range(300):
        operator = odd(*key, draw)
        fact = facts(operator)
        assert fact is None or isinstance(fact, Signature | Permuted | Regrouped)
        if isinstance(fact, Permuted):
            assert sorted(fact.perm) == list(range(operator.rank() or 0))
        if isinstance(fact, Signature):
            fits(fact, operator)


def fits(signature: Signature, operator: Operator) -> None:
    """As many letters as dimensions everywhere, and changes that can be asked for."""
    for given, shapes in ((signature.inputs, operator.inputs), (signature.outputs, operator.outputs)):
        for letters, shape in zip(given, shapes, strict=True):
            assert letters is None or (shape is not None and len(letters) == len(shape))
    for variant in signature.variants:
        assert len(variant.inputs) == len(signature.inputs)
        assert len(variant.outputs) == len(signature.outputs)
    signature.changes(Placement(*(sides(signature, operator))))


def sides(signature: Signature, operator: Operator) -> tuple[tuple[tuple[tuple[str, Extent], ...] | None, ...], ...]:
    def placed(letters: tuple[str, ...] | None, shape: tuple[Dim, ...] | None) -> tuple[tuple[str, Extent], ...] | None:
        if letters is None or shape is None:
            return None
        return tuple((letter, Extent.of(dim)) for letter, dim in zip(letters, shape, strict=True))

    return (
        tuple(map(placed, signature.inputs, operator.inputs)),
        tuple(map(placed, signature.outputs, operator.outputs)),
    )


@pytest.mark.parametrize(
    ("op_type", "constants", "slot"),
    [("Pad", ([0, 0, 0, 1],), 1), ("Slice", ([1], [6], [1]), 2), ("Split", ([2, 4],), 1)],
)
def test_an_axis_that_only_the_node_knows_keeps_what_is_said_of_it(
    op_type: str, constants: tuple[list[int], ...], slot: int
) -> None:
    """A Loop states 6 elements of what is open outside of it: no grain has made the axis shorter."""
    values = [
        ir.Value(name=f"c{i}", shape=ir.Shape([len(c)]), const_value=ir.Tensor(np.array(c)))
        for i, c in enumerate(constants)
    ]
    axis = [ir.convenience.convert_attribute("axis", 1)] * (op_type == "Split")
    x, shapes = ir.Value(name="x", shape=ir.Shape([2, 6])), ((2, 6), *((len(each),) for each in constants))
    node = ir.Node("", op_type, [x, *values], axis, num_outputs=2 if op_type == "Split" else 1)
    fact = facts(Operator(node, 21, shapes, tuple((2, None) for _ in node.outputs)))
    assert isinstance(fact, Signature)
    own = tuple((letter, extent) for letter, extent in zip(fact.inputs[0], (Extent(2), Extent.of("n")), strict=True))
    changes = fact.changes(Placement((own, *(None for _ in constants)), (own,)))
    kept = changes.inputs.get(slot)
    assert kept is None or kept.tolist() == constants[slot - 1]
