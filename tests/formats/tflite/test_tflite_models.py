"""Every model in ../shared that the interpreter can run, against the interpreter."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from tflite_running import SHARED, check_model, compare, feed, read, run_interpreter, session

from relayout.errors import ReadError, UnsupportedError
from relayout.formats.tflite.container.loading import load

FILES = sorted(SHARED.glob("*/*.tflite"))

UNSUPPORTED = {
    "invalid_model_invoking_error": "CUSTOM fake-op-double",
    "bodypix_mobilenet_v1_075_512_512_16_quant_decoder": "CUSTOM PosenetDecoderOp",
    "posenet_mobilenet_v1_075_353_481_16_quant_decoder": "CUSTOM PosenetDecoderOp",
    "posenet_mobilenet_v1_075_481_641_16_quant_decoder": "CUSTOM PosenetDecoderOp",
}

RANDOM = {"RANDOM_UNIFORM"}
"""Models whose outputs are another stream of numbers, whatever is written."""

UNEQUAL = {"deeplabv3_mnv2_dm05_pascal_quant": 0.005}
"""Where the output is a class, the share of elements that may differ: as the runtime's own kernels do."""


DEEP = [
    "movenet_single_pose_lightning_ptq",
    "tf2_mobilenet_v2_1.0_224_ptq",
    "mobilenet_v1_0.5_160_quant",
    "deeplabv3_mnv2_dm05_pascal_quant",
    "keras_lstm_mnist_ptq",
    "mobilenet_v2_1.0_224_inat_bird_quant",
]


def parameters() -> list[object]:
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"{SHARED} is absent"))
    return [pytest.param(path, id=path.stem) for path in FILES] or [absent]


def found(name: str) -> Path:
    for path in FILES:
        if path.stem == name:
            return path
    pytest.skip(f"{SHARED} is absent")


@pytest.mark.parametrize("path", parameters())
@pytest.mark.sampled(every=2)
def test_model_computes_what_the_interpreter_computes(path: Path) -> None:
    if path.stem in UNSUPPORTED:
        with pytest.raises(UnsupportedError, match=UNSUPPORTED[path.stem]):
            read(path)
        return
    for result in compare(path.read_bytes()):
        if path.stem in RANDOM:
            assert result.error < 1
        elif path.stem in UNEQUAL:
            assert result.unequal <= UNEQUAL[path.stem], result
        else:
            assert result.error <= result.tolerance(result.dtype.kind in "iu"), result


@pytest.mark.parametrize("opset", [18, 19, 21, 22, 23])
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128", "mobilenet_v1_0.25_128_quant", "keras_lstm_mnist_ptq"])
def test_every_opset(name: str, opset: int) -> None:
    path = found(name)
    for result in compare(path.read_bytes(), opset=opset):
        assert result.error <= result.tolerance(result.dtype.kind in "iu"), result


@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "keras_lstm_mnist_ptq", "conv-relu.uint8"])
def test_dequantized_model_is_close(name: str) -> None:
    """The float model differs from the quantized one by the rounding that it no longer does."""
    path = found(name)
    quantized, plain = read(path), read(path, quant="float")
    assert not {node.op_type for node in plain.graph.all_nodes()} & {"QuantizeLinear", "DequantizeLinear"}
    assert all(value.dtype == ir.DataType.FLOAT for value in (*plain.graph.inputs, *plain.graph.outputs))
    (x,) = quantized.graph.inputs
    nodes = [n for n in quantized.graph if n.op_type == "DequantizeLinear"]
    rng = np.random.default_rng(0)
    stored = feed(rng, tuple(d for d in x.shape or () if isinstance(d, int)), x.dtype.numpy() if x.dtype else None)
    scale, zero = _parameters(next(n for n in nodes if n.inputs[0] is x or _source(n) is x))
    got = session(check_model(plain)).run(None, {x.name: (stored.astype(np.float32) - zero) * scale})
    wanted = session(check_model(quantized)).run(None, {x.name: stored})
    for a, b, value in zip(got, wanted, quantized.graph.outputs, strict=True):
        node = value.producer()
        while node is not None and node.op_type != "QuantizeLinear":
            source = node.inputs[0]
            assert source is not None
            node = source.producer()
        scale, zero = _parameters(node) if node is not None else (scale, zero)
        meant = (b.astype(np.float32) - zero) * scale
        assert np.abs(a - meant).max() <= max(0.15 * np.abs(meant).max(), 2 * scale)


def _source(node: ir.Node) -> ir.Value | None:
    value = node.inputs[0]
    producer = value.producer() if value is not None else None
    return producer.inputs[0] if producer is not None else None


def _parameters(node: ir.Node) -> tuple[float, int]:
    scale, zero = node.inputs[1], node.inputs[2]
    assert scale is not None
    assert scale.const_value is not None
    assert zero is not None
    assert zero.const_value is not None
    return float(scale.const_value.numpy()), int(zero.const_value.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["movenet_single_pose_lightning_ptq", "keras_lstm_mnist_ptq", "MATRIX_SET_DIAG"])
def test_damaged_models_are_refused_in_time(name: str) -> None:
    original = found(name).read_bytes()
    rng = np.random.default_rng(1)
    words = np.frombuffer(original[: len(original) // 4 * 4], np.uint32)
    for _ in range(600):
        damaged = words.copy()
        for place in rng.integers(0, len(words), 20 if len(words) > 10_000 else 1):
            damaged[place] = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, len(original), damaged[place] ^ 1])
        start = time.perf_counter()
        with contextlib.suppress(ReadError, UnsupportedError):
            read(damaged.tobytes())
        assert time.perf_counter() - start < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_each_operator_of_a_network_alone(name: str) -> None:
    """Deep networks amplify a rounding: so every operator is fed what the interpreter feeds it, and may be off by 1."""
    content = found(name).read_bytes()
    made = Interpreter(
        model_content=content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    made.allocate_tensors()
    rng = np.random.default_rng(1)
    run_interpreter(made, [feed(rng, tuple(d["shape"]), d["dtype"]) for d in made.get_input_details()])
    index = {v: k for k, v in tensor_names(content).items()}
    proto = ir.to_proto(read(content))
    constants = {t.name: t for t in proto.graph.initializer}
    typed = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in typed}
    dims = {value.name: value.type.tensor_type.shape.dim for value in typed}
    widths = {name: dim[-1].dim_value for name, dim in dims.items() if name.endswith(WIDER)}
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        (source,) = [p.value for p in node.metadata_props if p.key == "relayout.source"]
        groups.setdefault(source, []).append(node)
    for source, nodes in groups.items():
        made_here = {name for node in nodes for name in node.output}
        read_here = sorted({name for node in nodes for name in node.input if name} - made_here - set(constants))
        outputs = sorted(made_here & {*index, *(f"{name}{WIDER}" for name in index)})
        if not outputs:
            continue  # a conversion that stands beside another operator
        bodies = [a.g for n in nodes for a in n.attribute if a.g.node]  # these read from outside without saying so
        reads = {i for n in (*nodes, *(inner for body in bodies for inner in body.node)) for i in n.input}
        used = [constants[c] for c in sorted(reads & set(constants))]
        inputs = {
            i: widened(as_imported(made.get_tensor(index[plain(i)]), types.get(i)), widths.get(i)) for i in read_here
        }
        graph = onnx.helper.make_graph(
            nodes,
            "one",
            [onnx.helper.make_tensor_value_info(i, _element(v), v.shape) for i, v in inputs.items()],
            [onnx.helper.make_empty_tensor_value_info(o) for o in outputs],
            used,
        )
        alone = onnx.helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        for output, got in zip(outputs, session(alone.SerializeToString()).run(outputs, inputs), strict=True):
            wanted = as_imported(made.get_tensor(index[plain(output)]), types.get(output))
            shown = got[..., : wanted.shape[-1]] if output.endswith(WIDER) else got
            error = np.abs(shown.astype(np.float64) - wanted.astype(np.float64)).max()
            assert error <= (1 if wanted.dtype.kind in "iu" else 1e-5 * max(np.abs(wanted).max(), 1)), source


WIDER = "/wider"
"""End of the name of a value that has channels beside those of the file, which nothing may depend on."""


def plain(name: str) -> str:
    """The name of a value in the file."""
    return name.removesuffix("/unsigned").removesuffix(WIDER)


def widened(array: NDArray[Any], width: int | None) -> NDArray[Any]:
    """The value with more channels, of any content."""
    if width is None:
        return array
    more = [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])]
    return np.pad(array, more, constant_values=77)


def as_imported(array: NDArray[Any], element: int | None) -> NDArray[Any]:
    """What the interpreter holds, as the import does: its bytes without a sign are 128 higher."""
    if array.dtype == np.int8 and element == onnx.TensorProto.UINT8:
        return (array.astype(np.int16) + 128).astype(np.uint8)
    return array


def tensor_names(content: bytes) -> dict[int, str]:
    """Tensor index -> its name in the imported model."""
    model = load(content)
    subgraph = model.subgraphs[0]
    signature = model.signatures[0] if model.signatures else None
    names = {t.index: t.name for t in subgraph.tensors}
    for name, position in (*signature.inputs, *signature.outputs) if signature else ():
        names[position] = name
    return names


def _element(value: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
