"""Sparse constants of a file are dense ones here, equal to what ONNX Runtime makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout import ReadError
from relayout.formats.onnx.reading import read

DENSE = np.array([[0, 1.5, 0], [0, 0, -2]], np.float32)
PLACES = {"flat": [1, 5], "each axis": [[0, 1], [1, 2]]}


def sparse(places: Any, *, values: Any = (1.5, -2), dims: Any = (2, 3), kind: Any = np.int64) -> onnx.SparseTensorProto:
    held = numpy_helper.from_array(np.array(values, np.float32), "w")
    return helper.make_sparse_tensor(held, numpy_helper.from_array(np.array(places, kind)), list(dims))


def in_segments(part: str) -> onnx.SparseTensorProto:
    tensor = sparse([1, 5])
    getattr(tensor, part).segment.end = 1
    return tensor


def of_initializer(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    graph = onnx.parser.parse_graph("g (float[2,2] x) => (float[2,3] y) { y = MatMul(x, w) }")
    graph.sparse_initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def of_constant(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    model = of_initializer(tensor)
    del model.graph.sparse_initializer[:]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=tensor))
    return model


def in_a_body(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    model = of_constant(tensor)
    body = onnx.parser.parse_graph("b () => (float[2,3] z) { z = MatMul(x, w) }")
    body.node.insert(0, model.graph.node[0])
    del model.graph.node[:]
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body))
    return model


@pytest.mark.parametrize("make", [of_initializer, of_constant, in_a_body])
@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_sparse_constants_are_those_of_the_runtime(make: Any, places: Any) -> None:
    model = make(sparse(places))
    result = relayout.convert(model, io="convert")
    assert not result.proto.graph.sparse_initializer
    report = relayout.verify(model, result.proto)
    assert report.ok
    if make is of_initializer:
        np.testing.assert_array_equal(read(model).graph.initializers["w"].const_value.numpy(), DENSE)
        assert model.graph.sparse_initializer  # the caller's is not changed


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32])
def test_places_of_shorter_integers(kind: Any) -> None:
    """ONNX Runtime writes the shortest that will do."""
    found = read(of_initializer(sparse([1, 5], kind=kind))).graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(found, DENSE)


@pytest.mark.parametrize("places", [np.zeros(0, int), np.zeros((0, 2), int)])
def test_one_without_elements_is_all_zeros(places: Any) -> None:
    found = read(of_initializer(sparse(places, values=()))).graph.initializers["w"].const_value.numpy()
    np.testing.assert_array_equal(found, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("dims", [(), (0, 3)])
def test_scalars_and_what_has_no_room(dims: tuple[int, ...]) -> None:
    if dims:
        with pytest.raises(ReadError, match="lies outside"):
            read(of_initializer(sparse([0], values=[5], dims=dims)))
    else:
        assert read(of_initializer(sparse([0], values=[5], dims=dims))).graph.initializers["w"].const_value.numpy() == 5


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (sparse([1, 6]), "lies outside"),
        (sparse([-1, 5]), "lies outside"),
        (sparse([[0, 1], [2, 0]]), "lies outside"),
        (sparse([[0, 1], [0, -1]]), "lies outside"),
        (sparse([1, 2, 5]), "places of the shape"),
        (sparse([[0, 1, 1], [0, 0, 0]]), "places of the shape"),
        (sparse([1, 5], values=[[1.5, -2]]), "not of numbers in a list"),
        (sparse([1, 5], kind=np.float32), "not of numbers in a list"),
        (sparse([1, 5], dims=(1 << 20, 1 << 20)), "too large"),
        (sparse([1, 5], dims=(-2, 3)), "no tensor can have the shape"),
        (onnx.SparseTensorProto(dims=[2, 3]), "unknown element type"),
        (in_segments("values"), "in segments"),
        (in_segments("indices"), "in segments"),
    ],
)
def test_one_that_is_none_is_an_error_that_says_where(tensor: onnx.SparseTensorProto, message: str) -> None:
    for make, where in ((of_initializer, "sparse initializer"), (of_constant, "Constant ''")):
        with pytest.raises(ReadError, match=message) as caught:
            read(make(tensor))
        assert where in str(caught.value)
