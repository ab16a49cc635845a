"""Faults planted in results of relayout: does `verify` see each that an output shows, and pass what is undamaged?

    python bench/planted_faults.py [--every N] [--json FILE]

Sources are the shipped models, and a few networks that are made here. Each is converted, and its result is damaged in
one place: weights times 1.001 to 1.1, channels swapped, scales, zero points, perms, pads, axes, operands exchanged, and
activations dropped. Both files then run on the same inputs. A fault counts if an output of the damaged file is off by
more than the tolerance that docs/verify.md states, or if the file does not run. Exit code 1 if one of these passes, or
if an undamaged result fails. `--every N` takes each Nth fault.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import relayout
from relayout.errors import RelayoutError
from relayout.verification import verify
from relayout.verification.compare import Difference, Spread, Tolerance, difference, judge, kind_of
from relayout.verification.comparison import Comparison
from relayout.verification.side import Feeds, Runner, Source, open_side

ROOT = Path(__file__).resolve().parents[1]
FACTORS = (1.001, 1.01, 1.1)
INPUTS = 3
"""Inputs for both files; `verify` draws the first two."""


class Fault(NamedTuple):
    """A damaged result.

    Args:
        name: the place and the damage.
        kind: the kind of damage.
        content: the damaged file.
    """

    name: str
    kind: str
    content: bytes


class Case(NamedTuple):
    """A source and a result of it."""

    name: str
    source: Source
    result: bytes


CONVOLUTIONS = """<ir_version: 10, opset_import: ["": 21]> g (float[1,3,16,16] x) => (float[1,6] y, float[1,8,8,8] z) {
    a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)  r = Relu(a)
    b = Conv<pads=[1,1,1,1]>(r, w2, b2)  s = Sigmoid(b)  m = Mul(b, s)
    d = Sub(m, r)  z = Clip(d, least, most)  p = GlobalAveragePool(z)  f = Flatten(p)
    l = Gemm(f, w3, b3)  y = Softmax(l) }"""
ATTENTION = """<ir_version: 10, opset_import: ["": 21]> g (float[1,12,16] x) => (float[1,12,16] y) {
    q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
    qr = Reshape(q, shape)  kr = Reshape(k, shape)  vr = Reshape(v, shape)
    qh = Transpose<perm=[0,2,1,3]>(qr)  kh = Transpose<perm=[0,2,3,1]>(kr)  vh = Transpose<perm=[0,2,1,3]>(vr)
    t = MatMul(qh, kh)  u = Mul(t, scale)  a = Softmax(u)  c = MatMul(a, vh)
    ct = Transpose<perm=[0,2,1,3]>(c)  cr = Reshape(ct, back)  o = MatMul(cr, wo)  e = Add(o, x)
    y = LayerNormalization<axis=-1>(e, g1, b1) }"""


def network(text: str, seed: int, **constants: Any) -> bytes:
    """A network of a text with random weights."""
    rng = np.random.default_rng(seed)
    proto = parser.parse_model(text)
    for name, value in constants.items():
        array = rng.normal(size=value).astype(np.float32) / 3 if isinstance(value, tuple) else np.asarray(value)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


def sources() -> dict[str, Source]:
    """Name -> model: the shipped ones, and those made here."""
    shipped = {kind: ROOT / "models" / f"tinynet_{kind}.tflite" for kind in ("float", "float16", "int8", "dynamic")}
    convolutions = network(
        CONVOLUTIONS, 1, w1=(8, 3, 3, 3), b1=(8,), w2=(8, 8, 3, 3), b2=(8,), w3=(8, 6), b3=(6,),
        least=np.float32(-0.5), most=np.float32(0.5),
    )  # fmt: skip
    attention = network(
        ATTENTION, 2, wq=(16, 16), wk=(16, 16), wv=(16, 16), wo=(16, 16), shape=np.array([1, 12, 4, 4]),
        back=np.array([1, 12, 16]), scale=np.float32(0.5), g1=(16,), b1=(16,),
    )  # fmt: skip
    return {**shipped, "convolutions": convolutions, "attention": attention}


def cases() -> Iterator[Case]:
    """Each source with its results as ONNX, in the source's layouts and channels last, and as TensorFlow Lite."""
    for name, source in sources().items():
        for io in ("keep", "convert"):
            made = relayout.convert(source, io=io)
            yield Case(f"{name} to .onnx, --io {io}", source, made.proto.SerializeToString())
        onnx_source = source if isinstance(source, bytes) else relayout.convert(source).proto.SerializeToString()
        yield Case(f"{name} to .tflite", onnx_source, relayout.convert(onnx_source, format="tflite").tflite)


def faults(result: bytes) -> Iterator[Fault]:
    """Every fault that can be planted in a file."""
    return _in_tflite(result) if result[4:8] == b"TFL3" else _in_onnx(result)


def _swapped(array: Any, axis: int) -> Any:
    """The array with the first two of its slices along an axis that are not alike exchanged."""
    order = list(range(array.shape[axis]))
    for other in range(1, len(order)):
        if not np.array_equal(array.take(0, axis), array.take(other, axis)):
            order[0], order[other] = order[other], order[0]
            break
    return array.take(order, axis)


def _of_array(array: Any, is_scale: bool) -> Iterator[tuple[str, Any]]:
    """Kinds of damage of a constant, and the damaged array."""
    if array.dtype.kind == "f" and array.size:
        for factor in FACTORS:
            yield f"{'scale' if is_scale else 'weights'} x {factor}", (array * array.dtype.type(factor))
    if array.dtype == np.int8 and array.ndim > 1:
        moved = array.copy()
        moved.reshape(-1)[: max(1, array.size // 8)] = -moved.reshape(-1)[: max(1, array.size // 8)]
        yield "weights negated", moved
    for axis in {0, array.ndim - 1} if array.ndim and array.size > 3 and array.dtype.kind in "fi" else set():
        if array.shape[axis] > 1 and not is_scale and array.dtype.itemsize < 8:
            yield "channels swapped", _swapped(array, axis)


def _in_onnx(content: bytes) -> Iterator[Fault]:
    model = onnx.load_from_string(content)
    scales = {name for node in model.graph.node if "Quantize" in node.op_type for name in node.input[1:2]}
    zeros = {name for node in model.graph.node if "Quantize" in node.op_type for name in node.input[2:3]}
    for place, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        changed = [("zero point + 1", array + array.dtype.type(1))] if tensor.name in zeros else []
        for kind, other in changed or _of_array(array, tensor.name in scales):
            copy = onnx.load_from_string(content)
            copy.graph.initializer[place].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(other), tensor.name))
            yield Fault(f"{tensor.name}: {kind}", kind, copy.SerializeToString())
    for place, node in enumerate(model.graph.node):
        for kind, change in NODE_FAULTS:
            copy = onnx.load_from_string(content)
            if change(copy.graph.node[place]):
                yield Fault(f"{node.op_type} {node.output[0]}: {kind}", kind, copy.SerializeToString())


def _attribute(node: Any, name: str) -> Any:
    return next((each for each in node.attribute if each.name == name), None)


def _other_perm(node: Any) -> bool:
    perm = _attribute(node, "perm")
    if node.op_type != "Transpose" or perm is None or len(perm.ints) < 2:
        return False
    perm.ints[-1], perm.ints[-2] = perm.ints[-2], perm.ints[-1]
    return True


def _other_pads(node: Any) -> bool:
    pads = _attribute(node, "pads")
    if pads is None or not any(pads.ints):
        return False
    half = len(pads.ints) // 2
    place = next(i for i, pad in enumerate(pads.ints) if pad)
    other = (place + half) % len(pads.ints)
    pads.ints[place], pads.ints[other] = pads.ints[place] - 1, pads.ints[other] + 1
    return True


def _other_axis(node: Any) -> bool:
    if node.op_type not in ("Softmax", "Concat", "ReduceMean"):
        return False
    axis = _attribute(node, "axis")
    if axis is None:
        node.attribute.append(helper.make_attribute("axis", 0))
    else:
        axis.i = 1 if axis.i != 1 else 2
    return True


def _exchanged(node: Any) -> bool:
    if node.op_type not in ("Sub", "Div", "MatMul", "Concat") or len(node.input) < 2 or node.input[0] == node.input[1]:
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def _dropped(node: Any) -> bool:
    if node.op_type not in ("Relu", "Clip", "Sigmoid", "HardSwish"):
        return False
    node.op_type = "Identity"
    del node.input[1:], node.attribute[:]
    return True


NODE_FAULTS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("another perm", _other_perm),
    ("pads moved", _other_pads),
    ("another axis", _other_axis),
    ("operands exchanged", _exchanged),
    ("activation dropped", _dropped),
)


def _in_tflite(content: bytes) -> Iterator[Fault]:
    from ai_edge_litert import schema_py_generated as schema

    def loaded() -> Any:
        return schema.ModelT.InitFromPackedBuf(content, 0)

    def fault(name: str, kind: str, model: Any) -> Fault:
        import flatbuffers

        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), b"TFL3")
        return Fault(f"{name}: {kind}", kind, bytes(builder.Output()))

    types = {
        schema.TensorType.FLOAT32: np.float32,
        schema.TensorType.FLOAT16: np.float16,
        schema.TensorType.INT8: np.int8,
    }
    types[schema.TensorType.INT32] = np.int32
    whole = loaded()
    graph = whole.subgraphs[0]
    codes = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    names = [codes[whole.operatorCodes[operator.opcodeIndex].builtinCode] for operator in graph.operators]
    perms = {int(op.inputs[1]) for op, name in zip(graph.operators, names, strict=True) if name == "TRANSPOSE"}
    pads = {int(op.inputs[1]) for op, name in zip(graph.operators, names, strict=True) if name in ("PAD", "PADV2")}
    for index, tensor in enumerate(graph.tensors):
        called, data = tensor.name.decode(), whole.buffers[tensor.buffer].data
        if data is not None and len(data) and tensor.type in types:
            array = np.frombuffer(bytes(data), types[tensor.type]).reshape(tensor.shape)
            damages = list(_of_array(array, False)) if array.dtype.kind == "f" or array.dtype == np.int8 else []
            if index in perms and array.size > 1:
                damages = [("another perm", np.concatenate([array[:-2], array[-2:][::-1]]))]
            if index in pads and array.any():
                damages = [("pads moved", array[:, ::-1])]
            for kind, other in damages:
                model = loaded()
                model.buffers[tensor.buffer].data = np.frombuffer(np.ascontiguousarray(other).tobytes(), np.uint8)
                yield fault(called, kind, model)
        quantization = tensor.quantization
        if quantization is not None and quantization.scale is not None and len(quantization.scale):
            for factor in FACTORS[1:]:
                model = loaded()
                model.subgraphs[0].tensors[index].quantization.scale = quantization.scale * np.float32(factor)
                yield fault(called, f"scale x {factor}", model)
            if tensor.type == schema.TensorType.INT8 and (data is None or not len(data)):
                model = loaded()
                model.subgraphs[0].tensors[index].quantization.zeroPoint = quantization.zeroPoint + 1
                yield fault(called, "zero point + 1", model)
    for place, (operator, name) in enumerate(zip(graph.operators, names, strict=True)):
        if name in ("SUB", "DIV", "BATCH_MATMUL", "CONCATENATION") and operator.inputs[0] != operator.inputs[1]:
            model = loaded()
            inputs = model.subgraphs[0].operators[place].inputs.copy()
            inputs[0], inputs[1] = inputs[1], inputs[0]
            model.subgraphs[0].operators[place].inputs = inputs
            yield fault(f"{name} {place}", "operands exchanged", model)
        if getattr(operator.builtinOptions, "fusedActivationFunction", 0):
            model = loaded()
            model.subgraphs[0].operators[place].builtinOptions.fusedActivationFunction = 0
            yield fault(f"{name} {place}", "activation dropped", model)
        if name in ("CONCATENATION",):
            model = loaded()
            model.subgraphs[0].operators[place].builtinOptions.axis = 1
            yield fault(f"{name} {place}", "another axis", model)


class Bounds:
    """The outputs of a sound result on a few inputs, and how far another may be off: as docs/verify.md says."""

    def __init__(self, case: Case) -> None:
        self._runs: list[tuple[Feeds, Feeds, Mapping[str, Difference]]] = []
        with open_side(case.result) as right, open_side(case.source, right.signature, other=right) as left:
            comparison = Comparison(left, right, Tolerance(1e-5, 1e-6), tensors=False)
            self._tolerance = comparison.tolerance
            spread = Spread(left, [], right)
            self._pairs = comparison.outputs
            for run in range(INPUTS):
                rng = np.random.default_rng([0, run])
                piece = next(comparison.pieces({}, rng, signed=run % 2 == 0))
                wide = spread.of(piece.first, piece.runs[0][0]) if left.rounds else {}
                self._runs.append((piece.carried, piece.first, wide))

    def exceeded(self, content: bytes) -> bool:
        """Tell whether an output is beyond what is stated, on any of the inputs, or the file does not run."""
        try:
            with open_side(content) as side:
                runner = side.runner()
                return any(self._is_beyond(runner, *run) for run in self._runs)
        except (RelayoutError, KeyError):
            return True

    def _is_beyond(self, runner: Runner, carried: Feeds, first: Feeds, spreads: Mapping[str, Difference]) -> bool:
        theirs = runner.run(carried, [pair.right.name for pair in self._pairs])
        for pair in self._pairs:
            one, other = pair.same_way(first[pair.left.name], theirs[pair.right.name])
            if one.shape != other.shape or one.dtype != other.dtype:
                return True
            kind = kind_of(one, pair.left.quantized)
            spread = spreads.get(pair.left.name)
            verdict = judge(difference(one, other), kind, self._tolerance, spread, pair.left.step)
            if not verdict.passes:
                return True
        return False


def passes(source: Source, content: bytes) -> bool:
    """Tell whether `verify` passes a file."""
    try:
        return verify(source, content).ok
    except RelayoutError:
        return False


def main() -> int:
    """Plant all faults, and print what was seen."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--every", type=int, default=1, metavar="N", help="each Nth fault")
    arguments.add_argument("--json", type=Path, metavar="FILE")
    options = arguments.parse_args()
    counts: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    place = 0
    for case in cases():
        if not passes(case.source, case.result):
            counts["undamaged, failed"] += 1
            print(f"{case.name}: FAILED without damage", flush=True)
        bounds = Bounds(case)
        for each in faults(case.result):
            place += 1
            if place % options.every:
                continue
            is_over, is_seen = bounds.exceeded(each.content), not passes(case.source, each.content)
            counts["planted"] += 1
            counts["over the tolerance" if is_over else "within the tolerance"] += 1
            counts["over, seen" if is_over and is_seen else "over, missed" if is_over else "within, seen too"] += (
                is_over or is_seen
            )
            rows.append({"case": case.name, "fault": each.name, "kind": each.kind, "over": is_over, "seen": is_seen})
            if is_over and not is_seen:
                print(f"MISSED {case.name}: {each.name}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    if options.json is not None:
        options.json.write_text(json.dumps({"counts": counts, "faults": rows}, indent=1))
    return int(bool(counts["over, missed"] or counts["undamaged, failed"]))


if __name__ == "__main__":
    sys.exit(main())
