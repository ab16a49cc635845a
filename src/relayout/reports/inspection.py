"""What a model's file is: format, operators, inputs and outputs, number formats, layouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from relayout.errors import printable
from relayout.formats.bundle import open_model
from relayout.formats.onnx.replacing import perms
from relayout.formats.tflite.container.loading import load, open_source
from relayout.formats.tflite.container.metadata import metadata
from relayout.formats.tflite.container.model import Model, Tensor
from relayout.formats.tflite.container.transposes import transposes
from relayout.graph.facts import facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.light_dataclass import dataclass
from relayout.reports.layouts import end_layout, layout_name
from relayout.reports.report import UNKNOWN, Report, frequencies, integers_in_words
from relayout.terminal import Grid, Line, count_of, line, tabled

ORT = "ORT format"  # the name of ONNX Runtime's own format
MOST = 12  # operators and ends that are listed on a terminal; `--json` has all
ABOUT = ("name", "description", "version", "author")  # what a `.tflite` may say of itself


@dataclass(frozen=True)
class End:
    """An input or output: its stored layout, and the one that it would cost nothing to have.

    `scale` and `zero_point` say what integers of 8 bits mean; None for other ends.
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: str = ""
    free: str = ""
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True)
class Moved:
    """Transposes at run time and the bytes that they move in one inference; `verdict` says what is proved of it."""

    transposes: int
    bytes: int
    verdict: str = ""


@dataclass(frozen=True)
class Inspection:
    """The contents of a file, and the bytes that a conversion would save."""

    file: str  # its path
    format: str  # `TensorFlow Lite`, `ONNX` or `ORT format`
    size: int  # bytes of the file
    versions: dict[str, int]  # of the format: opsets and IR version, or the schema
    about: dict[str, str]  # what it says of itself: producer, description, author
    signatures: tuple[str, ...]  # of a `.tflite`, by key
    operators: dict[str, int]  # operator -> how many, in bodies too; in the format's own names
    ends: tuple[End, ...]  # inputs and outputs
    values: dict[str, int]  # element type -> how many values that are computed; `q` has a scale
    weights: dict[str, tuple[int, int]]  # element type -> how many constants, and their bytes
    transposed: dict[str, int] = field(default_factory=dict)  # perm of a Transpose in the file -> how many
    own: Moved | None = None  # what a `.tflite` itself transposes, in LiteRT
    now: Moved | None = None  # what the file transposes; of a `.tflite`, a literal translation to ONNX
    keep: Moved | None = None  # the proved minimum with the interface kept
    convert: Moved | None = None  # with the interface in the layouts that cost nothing
    problem: str = ""  # why it cannot be converted, if so

    def to_dict(self) -> dict[str, Any]:
        """For machines: JSON types only."""
        return asdict(self)

    def with_reports(self, keep: Report, convert: Report) -> Inspection:
        """With what conversions would do: the interface kept, and converted."""
        free = {(end.kind, end.name): end.layout.rpartition("-> ")[2] for end in convert.interface}
        ends = tuple(
            End(*end[:5], free.get((end.kind, end.name), ""), end.scale, end.zero_point) for end in keep.interface
        )
        return replace(
            self,
            ends=ends,
            now=Moved(keep.source_transposes, keep.source_bytes),
            keep=Moved(keep.transposes, keep.bytes, keep.verdict),
            convert=Moved(convert.transposes, convert.bytes, convert.verdict),
        )


def tflite(path: Path) -> Inspection:
    """Of a `.tflite`, whether or not its operators can be converted.

    Raises:
        ReadError: it is damaged.
    """
    model = load(path)
    graph = model.subgraphs[0]
    tensors = [tensor for subgraph in model.subgraphs for tensor in subgraph.tensors]
    computed_ids = {id(s.tensors[i]) for s in model.subgraphs for o in s.operators for i in o.outputs}
    constants = [tensor for tensor in tensors if tensor.data is not None]
    return Inspection(
        file=str(path),
        format="TensorFlow Lite",
        size=open_model(path).size,
        versions={"schema": 3, "subgraphs": len(model.subgraphs)},
        about=_about(model, path),
        signatures=tuple(signature.key for signature in model.signatures),
        operators=frequencies(operator.name for subgraph in model.subgraphs for operator in subgraph.operators),
        ends=tuple(
            End(kind, tensor.name, _number(tensor), tuple(d if d >= 0 else "?" for d in tensor.signature))
            for kind, indices in (("input", graph.inputs), ("output", graph.outputs))
            for tensor in (graph.tensors[i] for i in indices)
        ),
        values=frequencies(_number(tensor) for tensor in tensors if id(tensor) in computed_ids),
        weights=_weighed((_number(tensor), tensor.data.nbytes) for tensor in constants if tensor.data is not None),
        own=Moved(*transposes(model)),
    )


def onnx(path: Path, model: ir.Model) -> Inspection:
    """Of an ONNX model as it was read, before anything was completed."""
    graph = model.graph
    nodes = list(all_nodes(graph))
    constants = [v.const_value for v in graph.initializers.values() if v.const_value is not None]
    about = {"producer": " ".join(filter(None, (model.producer_name, model.producer_version)))}
    about["description"] = model.doc_string or ""
    ort_format = facts_of(model).ort_format
    version = {} if ort_format is None else {"format": ort_format}
    opsets = {name or "opset": number for name, number in sorted(graph.opset_imports.items())}
    return Inspection(
        file=str(path),
        format="ONNX" if ort_format is None else ORT,
        size=path.stat().st_size,
        versions={**version, "IR": int(model.ir_version or 0), **opsets},
        about={key: text for key, text in about.items() if text},
        signatures=(),
        operators=frequencies(
            f"{n.domain}:{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in nodes
        ),
        ends=_ends(graph),
        values=frequencies(_dtype(value) for node in nodes for value in node.outputs if value.dtype is not None),
        weights=_weighed((str(tensor.dtype).lower(), tensor.nbytes) for tensor in constants),
        transposed=frequencies("reversed" if perm is None else " ".join(map(str, perm)) for perm in perms(model)),
    )


def _ends(graph: ir.Graph) -> tuple[End, ...]:
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    ends = [("input", value) for value in inputs] + [("output", value) for value in graph.outputs]
    return tuple(End(kind, value.name or "", _dtype(value), _dims(value)) for kind, value in ends)


def inspection_lines(inspection: Inspection) -> Iterator[Line | Grid]:
    """Describe a file for people."""
    versions = ", ".join(f"{name} {number}" for name, number in inspection.versions.items())
    yield line((f"{inspection.file}: {inspection.format}, {inspection.size:,} bytes; {versions}", "bold"))
    for name, text in inspection.about.items():
        yield line(f"{name}: {text}", is_cut=True)
    if inspection.signatures:
        yield line(f"signatures: {', '.join(inspection.signatures[:MOST])}")
    rows = [
        (
            end.kind,
            end.name,
            end.dtype,
            " × ".join(map(str, end.shape)),
            layout_name(end.layout) if end.free != end.layout else end_layout(end.layout, end.shape, same=""),
            layout_name(end.free) * (end.free != end.layout),
        )
        for end in inspection.ends[: 2 * MOST]
    ]
    yield tabled("", "name", "type", "shape", "layout", "free as", rows=rows)
    yield from map(line, integers_in_words(inspection.ends[: 2 * MOST]))
    listed = ", ".join(f"{printable(name)} {count}" for name, count in list(inspection.operators.items())[:MOST])
    more = f", … ({len(inspection.operators)} kinds)" if len(inspection.operators) > MOST else ""
    yield line(f"{count_of(sum(inspection.operators.values()), 'operator')}: {listed}{more}")
    if inspection.values:
        yield line(f"values: {', '.join(f'{name} {count}' for name, count in inspection.values.items())}")
    weights = ", ".join(f"{name} {count} ({size:,} bytes)" for name, (count, size) in inspection.weights.items())
    yield line(f"weights: {weights or 'none'}")
    if inspection.transposed:
        yield line(
            f"Transposes by perm: {', '.join(f'{perm} ×{count}' for perm, count in inspection.transposed.items())}"
        )
    if inspection.now and inspection.keep and inspection.convert:
        yield _won(inspection.own, inspection.now, inspection.keep, inspection.convert)
    if inspection.problem:
        yield line((f"cannot be converted: {inspection.problem}", "red"))


def _won(own: Moved | None, now: Moved, keep: Moved, convert: Moved) -> Grid:
    before = {"in the file": now} if own is None else {"in the file, for LiteRT": own, "as ONNX, literally": now}
    into = "" if own is None else "as ONNX, "
    named = {**before, f"{into}least, interface kept": keep, f"{into}least, --io convert": convert}
    rows = ((name, f"{moved.transposes:,}", f"{moved.bytes:,}", moved.verdict) for name, moved in named.items())
    return tabled("", "Transposes", "bytes per inference", "", rows=rows)


def _about(model: Model, path: Path) -> dict[str, str]:
    said = metadata(model, 0, open_source(path)).properties
    return {key: said[f"tflite.{key}"] for key in ABOUT if f"tflite.{key}" in said}


def _number(tensor: Tensor) -> str:
    return tensor.type.name.lower() + (" q" if tensor.quantization is not None else "")


def _dtype(value: ir.Value) -> str:
    return "?" if value.dtype is None else str(value.dtype).lower()


def _dims(value: ir.Value) -> tuple[int | str, ...]:
    if value.shape is None:
        return (UNKNOWN,)
    return tuple(dim if isinstance(dim, int) else dim.value or "?" for dim in value.shape)


def _weighed(items: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """Name -> (how many, bytes), the heaviest first."""
    totals: dict[str, tuple[int, int]] = {}
    for name, size in items:
        count, total = totals.get(name, (0, 0))
        totals[name] = (count + 1, total + size)
    return dict(sorted(totals.items(), key=lambda item: (-item[1][1], item[0])))
