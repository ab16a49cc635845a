"""The check before writing: the standard's own checker, and the shapes that the model claims."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, parser

from relayout.errors import WriteError
from relayout.formats.onnx.checking import _agree as agree
from relayout.formats.onnx.checking import check


def model(body: str, interface: str = "(float[2,3] x) => (float[2,3] y)", *claims: onnx.ValueInfoProto) -> ir.Model:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "my" : 1, "f" : 1]> g {interface} {body}')
    proto.graph.value_info.extend(claims)
    return ir.from_proto(proto)


def claim(name: str, *shape: int | str | None, kind: int = 1) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def refused(source: ir.Model) -> str:
    with pytest.raises(WriteError) as error:
        check(source)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_valid_models_pass() -> None:
    check(model("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (float[2,3] y)", claim("a", 2, 3)))
    check(model("{ a = Relu(x)  y = Neg(a) }", "(float[N,3] x) => (float[N,3] y)", claim("a", None, 3)))
    check(model("{ a = my.Op(x)  y = Neg(a) }", "(float[2,3] x) => (float[7,7] y)", claim("a", 7, 7)))


def test_the_checkers_own_findings() -> None:
    assert "Reluu" in refused(model("{ y = Reluu(x) }"))
    assert "Unrecognized attribute" in refused(model("{ y = Relu<beta = 1.0>(x) }"))
    assert "differ" in refused(model("{ y = Relu(x) }", "(float[2,3] x) => (float[2,4] y)"))
    assert "differ" in refused(
        model("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (float[2,3] y)", claim("a", 3, 2))
    )
    assert "topologically sorted" in refused(model("{ y = Neg(a)  a = Relu(x) }"))
    assert "Incompatible dimensions" in refused(
        model("{ y = Add(x, w) }", "(float[2,3] x, float[5] w) => (float[2,3] y)")
    )


def test_claims_that_the_checker_lets_pass() -> None:
    """A claim is fed into onnx's inference as if it were true; here it is inferred without."""
    reshape = "{ s = Constant<value = int64[2] {3, 2}>()  a = Reshape(x, s)  y = Neg(a) }"
    good = model(reshape, "(float[2,3] x) => (float[3,2] y)", claim("a", 3, 2))
    check(good)
    wrong = model(
        "{ s = Shape(x)  t = Gather<axis = 0>(s, i)  a = Reshape(x, t)  y = Neg(a) }",
        "(float[2,3] x) => (float[1,6] y)",
    )
    wrong.graph.register_initializer(ir.Value(name="i", const_value=ir.tensor(np.array([1, 0]), name="i")))
    assert "it claims FLOAT[1, 6] for 'y', and Neg '' makes FLOAT[3, 2]" in refused(wrong)


def test_types_are_claims_too() -> None:
    source = model(
        "{ a = Relu(x)  y = Cast<to = 1>(a) }", "(float[2,3] x) => (float[2,3] y)", claim("a", 2, 3, kind=10)
    )
    assert refused(source)


def test_values_behind_functions_are_inferred() -> None:
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "f" : 1]> g (float[2,3] x) => (float[2,3] y) '
        "{ a = f.t(x)  y = Neg(a) }"
    )
    proto.functions.append(
        parser.parse_function('<opset_import: ["" : 21], domain: "f"> t (a) => (b) { b = Transpose<perm = [1, 0]>(a) }')
    )
    assert "differ" in refused(ir.from_proto(proto)) or "claims" in refused(ir.from_proto(proto))
    proto.graph.output[0].CopyFrom(claim("y", 3, 2))
    check(ir.from_proto(proto))


def test_large_weights_are_never_evaluated() -> None:
    source = model("{ y = MatMul(x, w) }", "(float[2,3] x) => (float[2,999999] y)")

    def never() -> ir.Tensor:
        raise AssertionError

    lazy = ir.LazyTensor(never, ir.DataType.FLOAT, ir.Shape((3, 999999)), name="w")
    source.graph.register_initializer(
        ir.Value(name="w", const_value=lazy, shape=lazy.shape, type=ir.TensorType(lazy.dtype))
    )
    check(source)
    source.graph.inputs.append(source.graph.initializers["w"])
    check(source)


def test_small_weights_carry_shapes() -> None:
    source = model("{ y = Reshape(x, s) }", "(float[2,3] x) => (float[3,2] y)")
    proto = ir.to_proto(source)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 2]), "s"))
    check(ir.from_proto(proto))
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([6, 1]), "s"))
    assert "differ" in refused(ir.from_proto(proto)) or "claims" in refused(ir.from_proto(proto))
    proto.graph.initializer.append(helper.make_tensor("text", onnx.TensorProto.STRING, [1], [b"a"]))
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([3, 2]), "s"))
    check(ir.from_proto(proto))


def test_claims_are_compared_where_both_say_something() -> None:
    def tensor(kind: int, *shape: int | str) -> onnx.TypeProto.Tensor:
        return claim("v", *shape, kind=kind).type.tensor_type

    unknown = onnx.TypeProto.Tensor(elem_type=1)
    assert agree(tensor(1, 2, "N"), tensor(1, 2, 3))
    assert agree(tensor(1, 2), unknown)
    assert agree(unknown, tensor(1, 2))
    for other in (tensor(10, 2, 3), tensor(1, 3, 2), tensor(1, 2), tensor(1, 2, 3, 1)):
        assert not agree(tensor(1, 2, 3), other)
