"""The verbs that make a model: `convert` and its shorter forms, `optimize` and `explain`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from relayout.arguments import checked
from relayout.errors import LayoutError
from relayout.formats.in_memory import ModelSource, model_source
from relayout.formats.pytorch import exported
from relayout.layout import Dim
from relayout.lowering.interface_types import numbers_by_input
from relayout.pipeline.names import SourceNames, refuse_unusual_layouts
from relayout.pipeline.request import (
    OPTIONS,
    Format,
    ImportOptions,
    Io,
    LayoutRequest,
    OutputOptions,
    Quant,
    Regions,
    Request,
    SolverOptions,
    Source,
    State,
)
from relayout.pipeline.result import Result
from relayout.pipeline.source import holds_tflite
from relayout.pipeline.stages import run_stages
from relayout.pipeline.tflite_result import CUSTOM, LITERT, refuse_onnx_options, refuse_runtime
from relayout.quantization.request import Quantize, request_of
from relayout.reports.report import Report
from relayout.targets import DesiredLayouts

if TYPE_CHECKING:
    from relayout.targets import LayoutFor, Target


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: what is built here is all alive, and walking it again and again costs half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@checked(**OPTIONS)
@_collector_paused()
def convert(
    source: Source,
    args: Any = None,
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
    format: Format = "onnx",  # noqa: A002 - the name that users expect
    io: Io = "keep",
    layouts: Mapping[str, tuple[str, str]] | None = None,
    input_type: str | None = None,
    output_type: str | None = None,
    normalize: Mapping[str, Sequence[float | Sequence[float]]] | None = None,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    at: Mapping[str, int] | None = None,
    float32: bool = False,
    opset: int | None = None,
    quant: Quant = "qdq",
    signature: str | None = None,
    state: State = "zero",
    custom_ops: Mapping[str, str] | None = None,
    runtime: str | None = None,
    parts: bool = False,
    quantize: Quantize | None = None,
    calibrate: Any = None,
    keep_float: Sequence[str] = (),
    to: str | None = None,
    target: str | Target | None = None,
    desired_layouts: Mapping[str, Sequence[str] | str] | None = None,
    node_layouts: Mapping[str, Sequence[str] | str] | None = None,
    layout_for: LayoutFor | None = None,
    inline: bool = False,
    regions: Regions = "flat",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    per_transpose: int | None = None,
    exchange: bool = False,
    time_limit: float | None = None,
    what_if: bool = False,
    annotate: bool = False,
) -> Result:
    """Convert a model to ONNX or TensorFlow Lite, or its operators to other layouts, with the fewest transposed bytes.

    Args:
        source: a path to a `.tflite`, `.onnx` or `.ort` file, or into a bundle of models; the bytes of a `.tflite` or
            of ONNX, or an open binary file; or an ONNX model in memory, which is not changed: protobuf, onnx-ir's, or
            what `torch.onnx.export(…, dynamo=True)` returns.
        args: of a PyTorch module, which is exported first: what it is called with, a tuple of tensors or a dictionary.
        dynamic_shapes: of a PyTorch module: argument -> axis -> the name of an extent that stays open.
        format: of the result. For `tflite` the target is `litert`, unless another one is given.
        io: `keep` leaves names, types, shapes and stored orders of inputs and outputs; `convert` stores each in the
            order that costs nothing, and says so in the report and in the model's metadata; `NCHW` or `NHWC` stores
            each image-like one so, and leaves the others.
        layouts: tensor name -> (source layout, stored layout), such as `("NHWC", "NCHW")`: a pin on that tensor.
        input_type: `float32`, `int8` or `uint8` for the inputs that are quantized, `int32` for those of int64; others
            stay as they are. With
            `quantize`, inputs and outputs stay `float32` where nothing is said.
        output_type: the same for outputs.
        normalize: input -> (mean, standard deviation), each one number or one for each channel: the result computes
            `(x - mean) / std` of what it is fed, where the source is fed the normalized numbers.
        dims: dynamic dimension -> extent to fix it to, or the name of a dimension of the same extent, which it takes.
            `"image:0"`, an axis of an input, opens a fixed dimension: it gets the name, or the number, everywhere.
        batch: the name or number that the first axis of all inputs gets, fixed or not.
        at: dynamic dimension -> the extent that bytes are counted with, and the plan is chosen for; the result stays
            open. Any other counts as 1.
        float32: of an ONNX source: float64 and bfloat16 are computed in float32, inputs and outputs included.
        opset: opset of an ONNX result, from 13 on: operators that need a newer one are one error. By default the least
            that a `.tflite` needs, from 18 on, and that of an ONNX source, which is never raised.
        quant: what becomes of a quantized `.tflite`: integers in Quantize-Dequantize units, or a float model.
        signature: which signature of a `.tflite` to convert; by default the first.
        state: what becomes of a `.tflite`'s variables: `zero` starts every run from their initial values, `io` makes
            each an input and an output.
        custom_ops: custom operator -> its domain. One of a `.tflite` source is carried over as a node of that domain;
            in a `.tflite` result a node of that name and domain, of any domain for `""`, becomes a custom operator.
        runtime: of a `.tflite` result: the oldest TensorFlow Lite that has to run it, such as `2.14`. What its kernels
            lack is written by others, or refused.
        parts: of a `.tflite` result: it is not one file but parts (`Result.save_parts`), and operators that cannot be
            written are left to the host.
        quantize: of a `.tflite` result: `int8` makes integers of 8 bits of values and weights, `int16x8` of 16 bits of
            values, `dynamic` of weights alone; `float16` makes halves of weights. It needs `onnx-relayout[quantize]`.
        calibrate: samples that show `int8` and `int16x8` the range of each value: a folder or files of `.npy`, `.npz`
            or images, or an iterable of arrays, or of dictionaries by input, or one dictionary of arrays with the
            samples along a leading axis. A sample is what the source is fed.
        keep_float: with `quantize`: names of operators or values that stay float; `*` stands for any characters.
        to: the layout of all layout-sensitive operators: `NHWC`, `NCHW`, `NCHW16c`; other ranks follow.
        target: a backend (`relayout targets`): what it claims runs in layouts that it has.
        desired_layouts: operator -> layout of its images, or of images and kernel: `{"Conv": ["NHWC", "OHWI"]}`;
            `default` lets the target choose.
        node_layouts: the same by a node's name, or that of its first output.
        layout_for: the same by a function of the node, which answers None where it asks for nothing.
        regions: `functions` makes each part that the target runs a call of a model-local function in the domain
            `regions.NAME`; `flat` leaves one graph. `Result.save_parts` writes a file for each part.
        inline: write operators in other layouts as standard operators between Transposes, not as functions.
        inputs: only the part of the graph that these values begin: inputs of the source or interior values, by name.
            An input that the part needs besides stays an input, after these.
        outputs: only the part of the graph that ends in these values; by default all outputs.
        rename: name of the source -> name in the result, for inputs, outputs and interior values. All other options
            speak of the source's names, or of these.
        per_transpose: bytes that each Transpose costs besides those that it moves: with more than any tensor has, there
            are as few Transposes as can be, and then as few bytes. By default it is the target's, or 0; but of an ONNX
            model of which no other layouts are asked there are no more Transposes than before, and no more that copy
            single elements, though they may move fewer bytes (a note says how many).
        exchange: let a MatMul or Gemm run with its operands exchanged (`yᵀ = cᵀ aᵀ`), where that saves bytes. ONNX
            Runtime's CPU may take longer then.
        time_limit: seconds for the solver; then the best plan is used and its gap reported (default: limits
            of work alone).
        what_if: also find what each single constraint costs (`report.what_if`).
        annotate: put every value's layout into its metadata (`relayout.layout`), where viewers show it.

    Raises:
        ReadError: the file is not a model, or is damaged.
        UnsupportedError: operators that cannot be converted, all of them.
        LayoutError: a layout does not fit its tensor, or a target is not known.
        NamesError: `inputs`, `outputs` or `rename` name what is not there or cannot be so.
    """
    if format == "tflite":
        refuse_onnx_options({"--opset": opset, "--inline": inline, "--regions": regions == "functions"})
        target = LITERT if target is None else target
    refuse_runtime(runtime, format)
    refuse_unusual_layouts(layouts or {})
    node_layouts = SourceNames(rename).keys(node_layouts) or None
    desired = DesiredLayouts.of(to, target, desired_layouts, node_layouts, layout_for)
    if regions == "functions" and desired.target is None:
        raise LayoutError(
            "--regions functions parts what a target runs from the rest: give a target, too (none runs nothing)"
        )
    own_ops, names = custom_ops or {}, SourceNames(rename)
    source = model_source(exported(source, args, dynamic_shapes))
    imports = ImportOptions(
        opset=opset,
        quant=quant,
        signature=signature,
        state=state,
        custom_ops=_domains_of_custom_ops(source, own_ops, format),
        inputs=names.listed(inputs),
        outputs=names.listed(outputs),
        dims=names.places(dims),
        batch=batch,
        float32=float32,
    )
    quantization = request_of(
        quantize,
        calibrate,
        names.listed(keep_float),
        format=format,
        parts=parts,
        input_type=input_type,
        output_type=output_type,
    )
    if quantization is not None and quantization.is_calibrated:
        # The quantizer gives the ends their types, but for ids: no number of these is quantized.
        input_type, output_type = (each if each == "int32" else None for each in (input_type, output_type))
    numbers = names.keys(numbers_by_input(normalize))
    layout = LayoutRequest(io, names.keys(layouts), desired, input_type, output_type, numbers)
    solver = SolverOptions(per_transpose, exchange=exchange, time_limit=time_limit, what_if=what_if, at=at or {})
    output = OutputOptions(inline, regions, rename or {}, annotate, own_ops, parts, runtime or "", quantization)
    return run_stages(source, Request(imports, layout, solver, format), output)


@checked()
def optimize(
    source: Source,
    args: Any = None,
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    target: str | Target | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    per_transpose: int | None = None,
    exchange: bool = False,
    time_limit: float | None = None,
    what_if: bool = False,
    annotate: bool = False,
) -> Result:
    """Return the model with the fewest transposed bytes and no more Transposes than before, interface and meaning kept.

    What `convert` does with an ONNX model of which no other layouts are asked; the options are its. Where fewer bytes
    take more Transposes than the source has, or more that copy single elements and not runs, a note says so; with
    `per_transpose=0` the bytes alone count. With a `target` the model is for that runtime alone, and what its kernels
    cost counts, too.

    Raises:
        ReadError: the file is not a model, or is damaged.
    """
    return convert(
        source,
        args,
        dynamic_shapes=dynamic_shapes,
        dims=dims,
        batch=batch,
        target=target,
        inputs=inputs,
        outputs=outputs,
        rename=rename,
        per_transpose=per_transpose,
        exchange=exchange,
        time_limit=time_limit,
        what_if=what_if,
        annotate=annotate,
    )


def explain(source: Source, **options: Any) -> Report:
    """Report what `convert` would do with a model, and why, without writing anything.

    Args:
        source: as `convert` takes it.
        options: those of `convert`.

    Raises:
        RelayoutError: as `convert` does.
    """
    return convert(source, **options).report


def _domains_of_custom_ops(source: ModelSource, custom_ops: Mapping[str, str], format: Format) -> dict[str, str]:  # noqa: A002
    """Return the custom operators of a source and the domains that they get as nodes.

    Raises:
        LayoutError: one gets no domain, and the result is ONNX, whose nodes have one.
    """
    if format == "onnx":
        if bare := [name for name, domain in custom_ops.items() if not domain]:
            raise LayoutError(f"--custom-op {bare[0]}: a node of an ONNX result wants a domain: {bare[0]}=DOMAIN")
        return dict(custom_ops)
    return {name: domain or CUSTOM for name, domain in custom_ops.items()} if holds_tflite(source) else {}
