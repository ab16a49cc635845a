"""Random numbers. ONNX's generators draw another stream than TFLite's, from the same distributions.

So two runs of the two runtimes agree in nothing but shape, type, range and moments, whatever the seeds are.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.slicing import extents_of
from relayout.formats.tflite.importing.registry import Translation, Unsupported, described, operator

_FLOAT = ir.DataType.FLOAT


def _seed(op: Operation) -> float | None:
    """Seeds of zero mean none: another stream on each run."""
    options = op.options
    return float((options.seed ^ options.seed2 << 1) % (1 << 24)) if options.seed or options.seed2 else None


def _draw(name: str, op_type: str, what: str, **unit: Any) -> Translation:
    def translate(op: Operation) -> None:
        extents, shape = extents_of(op, 0)
        if op.output().type.name != "FLOAT32":
            raise Unsupported(f"random numbers of type {op.output().type.name}")
        count = dims(extents)[0] if len(dims(extents)) == 1 else None
        rank = count if isinstance(count, int) else len(op.tensors.declared(op.output()))
        known: Dims = op.out_dims(shape if shape is not None else (None,) * rank)
        zeros = op.emit("ConstantOfShape", [extents], known, _FLOAT)
        op.result(op.emit(op_type, [zeros], seed=_seed(op), **unit))

    return described(translate, name, f"{op_type}, {what}; another stream of numbers than TFLite's.")


_uniform = _draw("random_uniform", "RandomUniformLike", "from 0 to 1", low=0.0, high=1.0)
operator("RANDOM_UNIFORM", options="RandomOptions")(_uniform)
_normal = _draw("random_standard_normal", "RandomNormalLike", "mean 0 and deviation 1", mean=0.0, scale=1.0)
operator("RANDOM_STANDARD_NORMAL", options="RandomOptions")(_normal)


@operator("MULTINOMIAL", options="RandomOptions")
def multinomial(op: Operation) -> None:
    """Multinomial of logarithms of weights; another stream of numbers than TFLite's."""
    op.require_rank(0, 2)
    (count,) = op.integers(1, 1)
    if count < 1:
        raise ReadError(f"{count} samples", where=op.place)
    logits = op.real(0)
    # ONNX Runtime draws by exp(x), which for large x is infinite: logarithms of probabilities are never above 0.
    logits = op.emit("LogSoftmax", [logits], axis=-1)
    shape: Dims = (dims(logits)[0], count)
    op.result(op.emit("Multinomial", [logits], shape, ir.DataType.INT32, sample_size=count, seed=_seed(op)))
