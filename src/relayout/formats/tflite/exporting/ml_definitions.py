"""Definitions of operators of ai.onnx.ml: the operators of the standard that compute them.

    Scaler<offset, scale>(x)  ->  Mul(Sub(x, offset), scale)

Where a kernel is known to compute an operator in another way, for some rank or attribute, it has no definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

DOMAIN = "ai.onnx.ml"
AXES_ARE_OPERANDS = {"ReduceSum": 13, "ReduceMax": 18, "ReduceL1": 18, "ReduceL2": 18}
"""Reduction -> the version from which on its axes are an operand."""
FIRST = 9
"""The first version of the standard that has all operators below."""
TO_FLOAT = (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32)
"""Types of data that are computed in single precision."""


class Body:
    """The nodes of a definition under construction.

    Args:
        node: the node that it defines.
        imports: the model's: domain -> version.
    """

    def __init__(self, node: ir.Node, imports: Mapping[str, int]) -> None:
        self.node, self.imports = node, imports
        self.nodes: list[onnx.NodeProto] = []
        value = node.inputs[0]
        self.kind = None if value is None else value.dtype
        self.shape = None if value is None or value.shape is None else tuple(value.shape)
        """The extents of the first operand."""

    @property
    def rank(self) -> int:
        """The rank of the first operand; -1 where it is not known."""
        return -1 if self.shape is None else len(self.shape)

    def add(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return its result."""
        result = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [result], domain=domain, **attributes))
        return result

    def give(self, result: str, name: str = "y") -> None:
        """Let a result be an output."""
        self.nodes.append(onnx.helper.make_node("Identity", [result], [name]))

    def constant(self, array: NDArray[Any]) -> str:
        """Add a constant."""
        if array.dtype == object:
            tensor = onnx.helper.make_tensor("texts", onnx.TensorProto.STRING, array.shape, array.tolist())
            return self.add("Constant", value=tensor)
        return self.add("Constant", value=onnx.numpy_helper.from_array(array))

    def reduce(self, op_type: str, operand: str, axis: int) -> str:
        """Add a reduction that keeps its axis."""
        if self.imports.get("", FIRST) >= AXES_ARE_OPERANDS[op_type]:
            return self.add(op_type, operand, self.constant(np.array([axis])), keepdims=1)
        return self.add(op_type, operand, axes=[axis], keepdims=1)

    def data(self) -> str:
        """Return the first operand in single precision."""
        return "x0" if self.kind == ir.DataType.FLOAT else self.add("Cast", "x0", to=onnx.TensorProto.FLOAT)

    def rows(self) -> str:
        """Return the first operand in single precision, as rows: a vector is one row."""
        data = self.data()
        return self.add("Reshape", data, self.constant(np.array([1, -1]))) if self.rank == 1 else data

    def numbers(self, name: str) -> NDArray[np.float32]:
        """Return an attribute that is a list of numbers."""
        return np.array(self.node.attributes.get_floats(name, []), np.float32)

    def fits(self, *arrays: NDArray[Any]) -> bool:
        """Return whether lists have one number, or each of them one for every element of a row."""
        sizes = {array.size for array in arrays}
        return sizes == {1} or (self.rank in (1, 2) and self.shape is not None and sizes == {self.shape[-1]})


Definition = Callable[[Body], bool]
"""A function that adds the nodes of a definition; it returns False where there is none."""


def _feature(body: Body) -> bool:
    """Gather along the last axis; of a vector, a row."""
    if body.rank < 1:
        return False
    places = body.add("Reshape", "x1", body.constant(np.array([-1])))
    found = body.add("Gather", "x0", places, axis=body.rank - 1)
    body.give(body.add("Reshape", found, body.constant(np.array([1, -1]))) if body.rank == 1 else found)
    return True


def _binarizer(body: Body) -> bool:
    """Greater and Cast."""
    threshold = np.array(body.node.attributes.get_float("threshold", 0.0), np.float32)
    body.give(body.add("Cast", body.add("Greater", "x0", body.constant(threshold)), to=onnx.TensorProto.FLOAT))
    return body.kind == ir.DataType.FLOAT


def _scaler(body: Body) -> bool:
    """Sub and Mul, in single precision."""
    offset, scale = body.numbers("offset"), body.numbers("scale")
    if body.kind not in TO_FLOAT or not body.fits(offset, scale):
        return False
    body.give(body.add("Mul", body.add("Sub", body.data(), body.constant(offset)), body.constant(scale)))
    return True


def _normalizer(body: Body) -> bool:
    """Div by ReduceMax, which may be negative, or by ReduceL1 or ReduceL2; a row of zeros stays as it is."""
    by = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(body.node.attributes.get_string("norm", "MAX"))
    if body.kind not in TO_FLOAT or body.rank not in (1, 2) or by is None:
        return False
    data = body.data()
    size = body.reduce(by, data, body.rank - 1)
    is_zero = body.add("Equal", size, body.constant(np.array(0, np.float32)))
    body.give(body.add("Div", data, body.add("Where", is_zero, body.constant(np.array(1, np.float32)), size)))
    return True


def _imputer(body: Body) -> bool:
    """IsNaN or Equal, and Where."""
    attributes = body.node.attributes
    imputed: NDArray[Any] = body.numbers("imputed_value_floats")
    replaced: NDArray[Any] = np.array(attributes.get_float("replaced_value_float", 0.0), np.float32)
    if body.kind == ir.DataType.INT64:
        imputed = np.array(attributes.get_ints("imputed_value_int64s", []), np.int64)
        replaced = np.array(attributes.get_int("replaced_value_int64", 0))
    if body.kind not in (ir.DataType.INT64, ir.DataType.FLOAT) or not body.fits(imputed):
        return False
    is_missing = body.add("IsNaN", "x0") if replaced != replaced else body.add("Equal", "x0", body.constant(replaced))
    body.give(body.add("Where", is_missing, body.constant(imputed), "x0"))
    return True


def _one_hot(body: Body) -> bool:
    """Equal and Cast; of texts the place in the list, by a LabelEncoder, is compared."""
    attributes = body.node.attributes
    texts, numbers = attributes.get_strings("cats_strings", []), attributes.get_ints("cats_int64s", [])
    count = len(texts) or len(numbers)
    if body.rank < 0 or not count or len({*texts, *numbers}) < count or bool(texts) == bool(numbers):
        return False
    if texts:
        places = _places(body, list(texts))
        categories: NDArray[Any] = np.arange(count)
    else:
        places = "x0" if body.kind == ir.DataType.INT64 else body.add("Cast", "x0", to=onnx.TensorProto.INT64)
        categories = np.array(numbers)
    column = body.add("Reshape", places, body.constant(np.array([0] * body.rank + [1])))
    same = body.add("Equal", column, body.constant(categories))
    body.give(body.add("Cast", same, to=onnx.TensorProto.FLOAT))
    return body.kind in ((ir.DataType.STRING,) if texts else TO_FLOAT)


def _places(body: Body, texts: list[str]) -> str:
    """Return the place of each text of the first operand in a list; -1 where it is not there."""
    table: dict[str, Any] = {"keys_strings": texts, "values_int64s": list(range(len(texts)))}
    if body.imports.get(DOMAIN, 1) == 1:
        table = {"classes_strings": texts}
    return body.add("LabelEncoder", "x0", domain=DOMAIN, **table)


def _scores(body: Body, rows: int, *, biased: bool = False) -> str | None:
    """Return the scores of linear functions; None where the coefficients do not fit the features."""
    weights, bias = body.numbers("coefficients"), body.numbers("intercepts")
    count = None if body.shape is None or body.rank not in (1, 2) else body.shape[-1]
    if body.kind not in TO_FLOAT or not rows or weights.size != rows * (count if isinstance(count, int) else 0):
        return None
    if bias.size != rows and (bias.size or biased):
        return None
    operands = [body.rows(), body.constant(weights.reshape(rows, -1))]
    return body.add("Gemm", *operands, body.constant(bias if bias.size else np.zeros(rows, np.float32)), transB=1)


def _regressor(body: Body) -> bool:
    """Gemm."""
    attributes = body.node.attributes
    scores = _scores(body, attributes.get_int("targets", 1))
    if scores is None or attributes.get_string("post_transform", "NONE") != "NONE":
        return False
    body.give(scores)
    return True


def _classifier(body: Body) -> bool:
    """Gemm, ArgMax and Gather, with Sigmoid or Softmax.

    There are as many linear functions as labels: of one function for two labels kernels make up the second score.
    """
    attributes = body.node.attributes
    texts, numbers = attributes.get_strings("classlabels_strings", []), attributes.get_ints("classlabels_ints", [])
    labels = np.array([*texts, None], object)[:-1] if texts else np.array(numbers, np.int64)
    transform = attributes.get_string("post_transform", "NONE")
    scores = _scores(body, labels.size, biased=True) if labels.size > 1 else None
    if scores is None or transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        return False
    best = body.add("ArgMax", scores, axis=1, keepdims=0)
    body.give(body.add("Gather", body.constant(labels), best))
    if transform == "LOGISTIC":
        scores = body.add("Sigmoid", scores)
    elif transform == "SOFTMAX":
        scores = body.add("Softmax", scores, axis=1)
    body.give(scores, "z")
    return True


DEFINITIONS: Mapping[str, Definition] = {
    "ArrayFeatureExtractor": _feature,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
}
"""Operator of ai.onnx.ml -> what adds the nodes that compute it."""
UNKNOWN = "TensorFlow Lite has no such operator"
UNDEFINED = "no operators are known that compute it with these attributes, types and ranks"
"""The reasons why an operator without an export is refused: UNDEFINED is that of one which others may define."""


def summaries() -> dict[str, str]:
    """Return operator, with its domain -> what it becomes."""
    return {f"{DOMAIN}:{name}": (each.__doc__ or "").partition("\n")[0] for name, each in DEFINITIONS.items()}


def reason_of_lack(domain: str, op_type: str) -> str:
    """Return the reason why an operator is refused that has neither an export nor a definition."""
    return UNDEFINED if domain == DOMAIN and op_type in DEFINITIONS else UNKNOWN


def definition_of(node: ir.Node, imports: Mapping[str, int]) -> onnx.FunctionProto | None:
    """Return the function that an operator of ai.onnx.ml is; None of any other node, or where it has no definition.

    Args:
        node: the node.
        imports: the model's: domain -> version.
    """
    define = DEFINITIONS.get(node.op_type) if node.domain == DOMAIN else None
    if define is None or imports.get("", FIRST) < FIRST:
        return None
    body = Body(node, imports)
    if not define(body):
        return None
    opsets = [onnx.helper.make_opsetid("", imports.get("", FIRST)), onnx.helper.make_opsetid(DOMAIN, imports[DOMAIN])]
    inputs = [f"x{slot}" for slot in range(len(node.inputs))]
    return onnx.helper.make_function("", "", inputs, ["y", "z"][: len(node.outputs)], body.nodes, opsets)
