"""Is the model valid, and does every value have the shape it claims?"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir

from relayout import isolation
from relayout.errors import InvalidModelError, ReadError
from relayout.formats.onnx.inferring import infer, infer_shapes
from relayout.formats.onnx.parts import Weight, one_line, split

# Versions and defaults of operators, as ONNX's schemas of all opsets state them.


def schema_of(node: ir.Node, opset: int) -> Any | None:
    """Return the schema of a node in an opset; None where the opset has no such operator."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def first_version(op_type: str) -> int:
    """Return the first opset that has an operator."""
    return min(int(schema.since_version) for schema in _schemas(op_type))


def first_version_with(op_type: str, name: str) -> int:
    """Return the first opset in which an operator has an attribute."""
    return min(int(schema.since_version) for schema in _schemas(op_type) if name in schema.attributes)


def _schemas(op_type: str) -> Iterable[Any]:
    every = onnx.defs.get_all_schemas_with_history()
    return (schema for schema in every if schema.name == op_type and schema.domain == "")


ONES = frozenset({"dilations"})  # attributes whose default is 1 along each axis, which schemas say in their text only


def is_default(schema: Any, name: str, attribute: ir.Attr) -> bool:
    """Return whether an attribute has the default of a schema."""
    default = schema.attributes[name].default_value if name in schema.attributes else None
    if default is None or not default.type:
        return name in ONES and set(attribute.value) == {1}
    return bool(ir.serde.deserialize_attribute(default).value == attribute.value)


SMALL = 1 << 14
"""Integers of 32 and 64 bits stay up to so many bytes, since shapes may depend on them; no shape depends on more."""
INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
OF_SHAPES = (ir.DataType.UNDEFINED, *INTEGERS)
GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

UNRANKED = "Field 'shape' of 'type' is required but missing."
"""What ONNX's checker has against an input or output without a shape, over which it says nothing else; runtimes take
them."""

FEW = 1 << 8  # anything else stays up to so many: the scales of a Resize, the ends of a Range


def check(model: ir.Model) -> None:
    """Hold the model to the ONNX standard: checker, strict shape inference, and the shapes that the model claims.

    Large initializers are replaced by graph inputs of their type and shape, so that no weight is looked at.

    Raises:
        InvalidModelError: what is wrong, in one line.
    """
    check_parts(model, *split(model))


def check_parts(model: ir.Model, proto: onnx.ModelProto, weights: Sequence[Weight]) -> None:
    """`check` of a model that is serialized already; it is not changed."""
    light = _light(proto, weights)
    strange = _unknown(light)
    try:
        isolation.check_model(light)
        if not strange and _computes_no_shapes(model):
            return  # the checker itself has held all that is claimed against what it inferred
        bare, claims = _without_claims(light, strange)
        inferred = infer_shapes(bare, light.graph)
    except ReadError:  # it crashes
        raise
    except Exception as error:  # onnx raises three types of its own, ValueError and RuntimeError
        raise InvalidModelError(one_line(error)) from None
    inferred_types = {
        value.name: value.type.tensor_type for value in (*inferred.graph.value_info, *inferred.graph.output)
    }
    for node in light.graph.node:
        for name in node.output:
            claim, inference = claims.get(name), inferred_types.get(name)
            if claim is None or inference is None or claim == inference:
                continue
            if not _agree(claim, inference):
                raise InvalidModelError(
                    f"it claims {_text(claim)} for '{name}', and {node.op_type} '{node.name}' makes {_text(inference)}"
                )


def without_weights(model: ir.Model) -> onnx.ModelProto:
    """Return the model as protobuf, with its large initializers as graph inputs of their type and shape."""
    return _light(*split(model, inferred=True))


class Claims(NamedTuple):
    """The shapes that a file states of values of its main graph, compared with what their operators give."""

    contradicted: list[str]  # values that are of another type or shape
    unimplied: list[str]  # values with extents that do not follow from the inputs: they may be others in another run
    inferred: onnx.ModelProto | None  # the model with all that is inferred, where nothing is contradicted; else None


def drop_contradicted(proto: onnx.ModelProto) -> Claims:
    """Leave out what a model states of values of its main graph, and their operators do not give, in place.

    What a value is follows from the operators; some exporters move Transposes and leave the shapes behind, and runtimes
    go by what the operators give. An output, which must state a shape, states that one. What an operator gives that
    ONNX does not know stays stated, and so does everything where the rest is not valid, either.
    """
    strange = _unknown(proto)
    bare, claims = _without_claims(proto, strange)
    if (inferred := _consistent(bare)) is None:
        return Claims([], [], None)
    values = chain(inferred.graph.value_info, inferred.graph.output)
    inferred_types = {value.name: value.type.tensor_type for value in values if value.name in claims}
    wrong = {
        name: None
        for name, claim in claims.items()
        if name in inferred_types and not _agree(claim, inferred_types[name])
    }
    more = [
        name
        for name, claim in claims.items()
        if name not in wrong and _says_more(claim, inferred_types.get(name), rankless=not strange)
    ]
    for value in (value for value in proto.graph.output if value.name in wrong):
        value.type.tensor_type.CopyFrom(inferred_types[value.name])
    if wrong:
        remaining_values = [value for value in proto.graph.value_info if value.name not in wrong]
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(remaining_values)
    # ONNX raises nothing where any operator is unknown to it.
    return Claims(list(wrong), more, None if wrong or strange else inferred)


def _says_more(
    claim: onnx.TypeProto.Tensor,  # what is stated
    inference: onnx.TypeProto.Tensor | None,  # what is inferred without it
    *,
    rankless: bool,  # the answer where not even a rank is inferred: behind an operator that ONNX does not know
) -> bool:
    """Tell whether a claim has a number for an extent that inference has none for."""
    if inference is None or not inference.HasField("shape"):
        return rankless and any(dim.HasField("dim_value") for dim in claim.shape.dim)
    pairs = zip(claim.shape.dim, inference.shape.dim, strict=False)
    return any(dim.HasField("dim_value") and not inferred_dim.HasField("dim_value") for dim, inferred_dim in pairs)


def _computes_no_shapes(model: ir.Model) -> bool:
    """Tell whether no operator gives what a shape could be made of, and none reads constants alone.

    ONNX's checker does not follow the values of shapes; here there are none. A graph with bodies may have some.
    """
    return all(
        all(isinstance(value.type, ir.TensorType) and value.type.dtype not in OF_SHAPES for value in node.outputs)
        and not all(value is None or value.const_value is not None for value in node.inputs)
        and not (node.attributes and any(attribute.type in GRAPHS for attribute in node.attributes.values()))
        for node in model.graph
    )


def _unknown(model: onnx.ModelProto) -> set[tuple[str, str]]:
    """Return the operators of the main graph that ONNX does not know: domain and type."""
    called = {(node.domain, node.op_type) for node in model.graph.node}
    called -= {(function.domain, function.name) for function in model.functions}
    return {(domain, name) for domain, name in called if not onnx.defs.has(name, domain)}


def _consistent(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model with inferred shapes; None where an operator contradicts what is stated or what it is given."""
    try:
        return infer(proto, strict=True)
    except ReadError:  # it crashes
        raise
    except Exception:  # onnx raises three types of its own, ValueError and RuntimeError
        return None


def _light(model: onnx.ModelProto, weights: Iterable[Weight]) -> onnx.ModelProto:
    proto = deepcopy(model)
    inputs = {value.name for value in proto.graph.input}
    for weight in weights:
        header = weight.header()
        if weight.is_string or weight.size <= (SMALL if weight.dtype in INTEGERS else FEW):
            if not weight.is_string:
                header.raw_data = b"".join(weight.chunks())
            proto.graph.initializer.append(header)
        elif header.name not in inputs:
            proto.graph.input.append(onnx.helper.make_tensor_value_info(header.name, header.data_type, header.dims))
    return proto


def _without_claims(
    light: onnx.ModelProto,  # the model
    # the operators that ONNX does not know. What they make stays claimed: nothing can be inferred behind them
    # otherwise.
    strange: set[tuple[str, str]],
) -> tuple[onnx.ModelProto, dict[str, onnx.TypeProto.Tensor]]:
    """Return the model with its claimed shapes taken out, and the claims."""
    bare = deepcopy(light)
    del bare.graph.value_info[:]
    unclear = (node for node in light.graph.node if (node.domain, node.op_type) in strange) if strange else ()
    unknown = {name for node in unclear for name in node.output}
    unknown |= {value.name for value in (*light.graph.input, *light.graph.initializer)}  # an output may be one
    for value in light.graph.value_info:
        if value.name in unknown or not value.type.HasField("tensor_type"):
            bare.graph.value_info.append(value)
    for value in bare.graph.output:
        if value.name not in unknown and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    values = (value for value in (*light.graph.value_info, *light.graph.output) if value.type.HasField("tensor_type"))
    return bare, {value.name: value.type.tensor_type for value in values if value.name not in unknown}


def _agree(claim: onnx.TypeProto.Tensor, inference: onnx.TypeProto.Tensor) -> bool:
    if inference.elem_type and claim.elem_type != inference.elem_type:
        return False
    if not claim.HasField("shape") or not inference.HasField("shape"):
        return True
    claimed, inferred = claim.shape.dim, inference.shape.dim
    return len(claimed) == len(inferred) and all(
        not (a.HasField("dim_value") and b.HasField("dim_value")) or a.dim_value == b.dim_value
        for a, b in zip(claimed, inferred, strict=True)
    )


def _text(tensor: onnx.TypeProto.Tensor) -> str:
    extents = (str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    shape = f"[{', '.join(extents)}]" if tensor.HasField("shape") else ""
    return f"{onnx.TensorProto.DataType.Name(tensor.elem_type)}{shape}"
