"""Random questions to ONNX's shape inference: one node of each operator, with any attributes, ranks and constants."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import onnx
from onnx import AttributeProto, TensorProto, helper

FAR = (-(2**63), -(2**31) - 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1)
NEAR = tuple(range(-9, 10))
LISTS = ([], [0], [1], [-1], [2], [9], [1, 1], [0, 0, 0, 0], [1, 2, 3], [-1, -1], [2] * 5)
EXTENTS = (0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 6)
PREFERRED = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(uint8)", "tensor(int32)", "tensor(string)")
NAMES = {"float": "FLOAT", "double": "DOUBLE"}


def schemas() -> list[onnx.defs.OpSchema]:
    """All versions of all operators of which ONNX infers something."""
    found = onnx.defs.get_all_schemas_with_history()
    known = [schema for schema in found if schema.has_type_and_shape_inference_function or schema.has_function]
    return sorted(known, key=lambda schema: (schema.domain, schema.name, schema.since_version))


def models(schema: onnx.defs.OpSchema, count: int, rng: random.Random) -> Iterator[onnx.ModelProto]:
    """Models of one node of an operator, and of an Add of what it gives.

    Args:
        schema: of the operator.
        count: how many.
        rng: random numbers.
    """
    for _ in range(count):
        made = _model(schema, rng)
        if made is not None:
            yield made


def _model(schema: onnx.defs.OpSchema, rng: random.Random) -> onnx.ModelProto | None:
    inputs = min(rng.randint(schema.min_input, min(schema.max_input, schema.min_input + 3)), 8)
    outputs = rng.randint(schema.min_output, min(schema.max_output, schema.min_output + 2))
    ranks = [rng.randrange(5)] * inputs if rng.random() < 0.5 else [rng.randrange(6) for _ in range(inputs)]
    types = [_type(schema, slot, None if rng.random() < 0.05 else rank, rng) for slot, rank in enumerate(ranks)]
    try:
        attributes = list(_attributes(schema, rng))
    except TypeError:  # it needs one that is no number
        return None
    names = [f"i{slot}" for slot in range(inputs)]
    node = onnx.NodeProto(op_type=schema.name, domain=schema.domain, input=names, attribute=attributes)
    node.output.extend(f"o{slot}" for slot in range(outputs))
    graph = onnx.GraphProto(name="g", node=[node])
    for name, kind in zip(names, types, strict=True):
        integers = kind.tensor_type.elem_type == TensorProto.INT64
        if integers and rng.random() < 0.4:
            values = rng.choice(LISTS)
            graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        elif integers and rng.random() < 0.4:
            shaped = helper.make_tensor_value_info(f"{name}/shaped", TensorProto.FLOAT, rng.choice(LISTS[1:4]))
            shaped.type.CopyFrom(_tensor(TensorProto.FLOAT, rng.randrange(5), rng))
            graph.input.append(shaped)
            graph.node.insert(0, helper.make_node("Shape", [shaped.name], [name]))
        else:
            graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
    if outputs:
        graph.node.append(helper.make_node("Add", [node.output[0]] * 2, ["sum"]))
        graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, None))
    version = schema.since_version
    opsets = [helper.make_opsetid(schema.domain, version)] + [helper.make_opsetid("", 21)] * bool(schema.domain)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _type(schema: onnx.defs.OpSchema, slot: int, rank: int | None, rng: random.Random) -> onnx.TypeProto:
    allowed = schema.inputs[min(slot, len(schema.inputs) - 1)].types
    name = next((kind for kind in PREFERRED if kind in allowed), min(allowed))
    if not name.startswith("tensor("):
        return onnx.TypeProto(sequence_type=onnx.TypeProto.Sequence(elem_type=_tensor(TensorProto.FLOAT, rank, rng)))
    return _tensor(getattr(TensorProto, name[7:-1].upper()), rank, rng)


def _tensor(kind: int, rank: int | None, rng: random.Random) -> onnx.TypeProto:
    made = onnx.TypeProto()
    made.tensor_type.elem_type = kind
    if rank is not None:
        made.tensor_type.shape.SetInParent()
        is_open = rng.random() < 0.3
        for _ in range(rank):
            dim = made.tensor_type.shape.dim.add()
            if not is_open:
                dim.dim_value = rng.choice(EXTENTS)
    return made


def _attributes(schema: onnx.defs.OpSchema, rng: random.Random) -> Iterator[AttributeProto]:
    """All that are needed and some of the others; most integers are near."""
    for name, attribute in sorted(schema.attributes.items()):
        if attribute.required or rng.random() < 0.4:
            kind = str(attribute.type).rpartition(".")[2]
            value = _value(kind, rng)
            if value is None:
                if attribute.required:
                    raise TypeError
                continue
            yield helper.make_attribute(name, value, attr_type=getattr(AttributeProto, kind))


def _value(kind: str, rng: random.Random) -> int | float | bytes | Sequence[int] | Sequence[float] | None:
    one = rng.choice(FAR) if rng.random() < 0.05 else rng.choice(NEAR) if rng.random() < 0.4 else rng.randrange(3)
    if kind == "INTS":
        return rng.choice(([one] * rng.randrange(6), [1] * rng.randrange(4) + [one]))
    known = {"INT": one, "FLOAT": 1.0, "FLOATS": [1.0], "STRING": b"SAME_UPPER"}
    return known.get(kind)  # type: ignore[return-value]
