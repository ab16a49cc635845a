"""What a verb gives: the model, its report and its plan; how it is looked at, parted and written."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, WriteError
from relayout.formats.tflite.container.model import Model
from relayout.graph.facts import facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.internal_errors import one_error
from relayout.light_dataclass import dataclass
from relayout.reports.layouts import Naming
from relayout.reports.report import Report, frequencies

if TYPE_CHECKING:
    from relayout.formats.onnx.fixing import FixedSource
    from relayout.partition.regions import Part
    from relayout.targets import Target


# The folder of a result's parts: a model for each part, and the manifest that says how to run them.

FORMAT = "relayout-parts-1"  # the format of a manifest of parts
MANIFEST = "manifest.json"
WEIGHTS = ".data"  # suffix of the file with a large ONNX model's weights, behind the model's name


def write_parts(
    folder: Path,  # where to; it is made if it is not there
    parts: Sequence[tuple[Part, ir.Model | Model]],  # the parts, in the order in which they run, and their models
    header: Mapping[str, Any],  # what the manifest says of the whole model
    overwrite: bool,  # whether parts that were written there before may be replaced
) -> None:
    """Write a model for each part, and the manifest, all of them or none.

    Raises:
        WriteError: there is something else in the folder, or a file cannot be written.
    """
    from relayout.formats.onnx.atomic import write_text

    old = replaceable_files(folder, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".relayout-", dir=folder) as place:
        new = Path(place)
        rows = [part.to_dict(_write_part(new, part, model)) for part, model in parts]
        manifest = {"format": FORMAT, **header, "parts": rows}
        write_text(new / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        written = sorted(new.iterdir(), key=lambda path: path.name == MANIFEST)
        names = {path.name for path in written}
        try:
            for path in written:
                path.replace(folder / path.name)
            for path in old:
                if path.name not in names:
                    path.unlink()
        except OSError as error:
            raise WriteError(f"cannot write into '{folder}': {error.strerror or error}") from error


def replaceable_files(
    folder: Path,  # where parts are to be written; it need not be there
    overwrite: bool,  # whether earlier parts may be replaced
) -> list[Path]:
    """Return the files in a folder that new parts replace: the manifest there and the files that it names.

    Raises:
        WriteError: the folder holds earlier parts and `overwrite` is not given, or it holds something else.
    """
    if not folder.is_dir() and folder.exists():
        raise WriteError(f"{folder} is there already, and no directory: parts want a directory of their own")
    entries = sorted(folder.iterdir()) if folder.exists() else []
    if not entries:
        return []
    named = _files_of_manifest(folder / MANIFEST)
    if not named:
        raise WriteError(f"{folder} is there already, and not empty: parts want a directory of their own")
    if not overwrite:
        raise WriteError(f"{folder} holds parts already: --overwrite (in Python overwrite=True) replaces them")
    for entry in entries:
        if entry.name not in named or not entry.is_file():
            raise WriteError(
                f"cannot replace the parts in {folder}: its {MANIFEST} does not name '{entry.name}'; move it away"
            )
    return entries


def _files_of_manifest(path: Path) -> frozenset[str]:
    """Return the names of the manifest, its parts and their weights; none where the file is no manifest of parts."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if read["format"] != FORMAT:
            return frozenset()
        names = [str(row["file"]) for row in read["parts"]]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return frozenset()
    return frozenset({MANIFEST, *names, *(name + WEIGHTS for name in names)})


def _write_part(folder: Path, part: Part, model: ir.Model | Model) -> str:
    """Write a part's model and return the suffix of its file."""
    from relayout.formats.onnx.writing import write
    from relayout.formats.tflite.container.writer import save

    if isinstance(model, ir.Model):
        write(model, folder / f"{part.name}.onnx", overwrite=False, checked=False)
        return ".onnx"
    save(model, folder / f"{part.name}.tflite")
    return ".tflite"


# The report of a result that is a `.tflite`: what it counts is what the file has.


def tflite_report(
    report: Report,  # the report of the plan
    model: ir.Model,  # the graph that was exported
    file: Model,  # the result
    source: Model | None,  # the whole `.tflite` that it was made of, if it was one: its own Transposes are the source's
) -> Report:
    """Return the report of a result that was exported: its operators, Transposes and bytes are those of the file."""
    from relayout.formats.tflite.container.transposes import transposes
    from relayout.formats.tflite.container.versions import min_runtime_version

    if source is not None:
        count, size = transposes(source)
        report = replace(report, source_transposes=count, source_bytes=size)

    operators = frequencies(operator.name for subgraph in file.subgraphs for operator in subgraph.operators)
    report = replace(report, operators=operators, min_runtime=min_runtime_version(file))
    count, size = _beyond_plan(report, model, file)
    if not (count or size):
        return report
    total = report.bytes + size
    return replace(
        report,
        transposes=report.transposes + count,
        bytes=total,
        lower_bound=min(report.lower_bound, total),
        proved=report.proved and total <= report.lower_bound,
        notes=(*report.notes, *([_inside_operators(count, size, model, file)] if size > 0 else [])),
    )


def _beyond_plan(report: Report, model: ir.Model, file: Model) -> tuple[int, int]:
    """Return how many TRANSPOSEs a file has besides those of the plan, and their bytes; fewer ones are negative.

    What open extents and the bodies of loops count as, the plan alone knows. There the file is held to its graph.
    """
    from relayout.formats.tflite.container.transposes import transposes
    from relayout.formats.tflite.exporting.file_order import transposes_of_graph

    count, size = transposes(file)
    if len(file.subgraphs) == 1 and _is_static(file):
        return count - report.transposes, size - report.bytes
    sizes, steps = transposes_of_graph(model)
    count, size = count - len(sizes) - len(steps), size - sum(sizes) - sum(steps)
    if min(count, size) <= 0:
        count = size = 0
    return count + len(steps), size


def _is_static(file: Model) -> bool:
    return all(dim >= 0 for graph in file.subgraphs for tensor in graph.tensors for dim in tensor.signature)


def _names_of_tensors(node: ir.Node) -> Iterator[str]:
    """Yield what the names of the tensors are, or begin with, that a node becomes."""
    yield node.name or node.op_type
    yield from (value.name or "" for value in node.outputs)


def _inside_operators(count: int, size: int, model: ir.Model, file: Model) -> str:
    """Return the note on TRANSPOSEs that operators become besides those of the plan."""
    from relayout.formats.tflite.container.transposes import TRANSPOSE

    names = {name: node.op_type for node in all_nodes(model.graph) for name in _names_of_tensors(node)}
    tensors = (
        graph.tensors[operator.outputs[0]].name
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == TRANSPOSE
    )
    producers = (names.get(each) or names.get(each.rpartition("/transpose")[0]) for each in tensors)
    kinds = [kind for kind in dict.fromkeys(producers) if kind]
    kinds = [kind for kind in kinds if kind != "Transpose"] or kinds  # more axes than a kernel takes: several steps
    named = f": {', '.join(kinds)}" if kinds else ""
    return (
        f"of them {count} ({size:,} bytes) are steps of operators that LiteRT has no builtin for, which the bound does"
        f" not know{named}"
    )


@dataclass(frozen=True)
class Result:
    """A converted model and its report, as `convert` and `optimize` return it.

    result = relayout.convert("model.tflite")
    print(result)               # the report: what is still transposed, why, and what removes it
    result.save("model.onnx")   # checks the model and writes it

    Attributes:
        model: the model as an `onnx_ir.Model`. `proto` is the same as an `onnx.ModelProto`.
        report: what was done: `report.transposes`, `report.bytes`, `report.remaining`; `print(report)` shows it.
        target: the target that it was converted for, or None; `parts` and `save_parts` give its parts.
        format: `onnx` or `tflite`. Of a `.tflite`, `tflite` has the bytes.
        custom_ops: operators that become CUSTOM ones in a `.tflite`, by name -> their domain; "" for any.
        runtime: the oldest runtime that has to run a `.tflite`; "": any.
        written: makes `plan`, when that is read.
        untouched: the source itself, where nothing was to be won: it is given back as it was, but for fixed dimensions.
        naming: makes `layouts`.
        file: the `.tflite` model, which `tflite` and `save` write.
    """

    __signature__: ClassVar[Signature] = Signature()  # `help` shows no constructor that nobody calls

    model: ir.Model
    report: Report
    written: Callable[[], dict[str, Any]]
    untouched: Path | FixedSource | onnx.ModelProto | None = None
    naming: Naming | None = None
    target: Target | None = None
    format: Literal["onnx", "tflite"] = "onnx"
    file: Model | None = field(default=None, repr=False)
    custom_ops: Mapping[str, str] = field(default_factory=dict)
    runtime: str = ""

    @property
    def target_name(self) -> str:
        """The name of the target that it was converted for; empty if there is none."""
        return "" if self.target is None else self.target.name

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The choice and its certificate for `relayout check`, as JSON types."""
        return self.written()

    @one_error()
    def parts(self) -> list[Part]:
        """The parts that the target runs, and the rest, in the order in which they run.

        Raises:
            LayoutError: the model was converted for no target.
        """
        from relayout.partition.claims import whole_units

        with whole_units(self.model):
            return [part for part, _ in self._parts()]

    def _parts(self) -> Sequence[tuple[Part, ir.Model | Model | None]]:
        """Return the parts; those of a `.tflite` with their models, which tell whether they can be written."""
        from relayout.partition.regions import parts
        from relayout.pipeline.tflite_result import tflite_parts

        if self.format == "tflite":
            return tflite_parts(self.model, target_of(self), self.custom_ops, self.runtime)
        return [(part, None) for part in parts(self.model, target_of(self))]

    @one_error()
    def save_parts(self, directory: str | Path, *, overwrite: bool = False) -> list[Part]:
        """Write each part as a model of its own, and `manifest.json` with who runs it and what it reads and gives.

        Run in their order, each fed with what was given before, they compute what the model does. What the target runs
        has the result's format; what the host runs is ONNX.

        Args:
            directory: where to; it must not hold anything yet.
            overwrite: whether parts that were written into it before may be replaced: its `manifest.json` and the
                files that this names. Anything else in it is an error.

        Returns:
            The parts, in the order in which they run.

        Raises:
            LayoutError: the model was converted for no target.
            WriteError: there is something in the directory, the rank of a value that passes between parts is not known,
                or a file cannot be written.
        """
        from relayout.partition.claims import whole_units
        from relayout.partition.regions import part_model

        folder, target = Path(directory), target_of(self)
        replaceable_files(folder, overwrite)
        with whole_units(self.model):
            part_models = [(part, model or part_model(self.model, part)) for part, model in self._parts()]
        refuse_unknown_ranks([part for part, _ in part_models])
        ends = {
            "inputs": [value.name for value in self.model.graph.inputs],
            "outputs": [value.name for value in self.model.graph.outputs],
        }
        write_parts(folder, part_models, {"target": target.name, **ends}, overwrite)
        return [part for part, _ in part_models]

    @property
    def layouts(self) -> dict[str, str]:
        """Value of the result -> its layout in einops' notation."""
        return {} if self.naming is None else self.naming.of(self.model)

    @one_error()
    def html(self, title: str = "model") -> str:
        """The graph before and after, with every remaining Transpose and its reason, as one page without requests."""
        from relayout.reports.page import page

        return page(self.report, title)

    def node_data(self) -> dict[str, Any]:
        """The layouts of all values as Model Explorer's node data, JSON types: for the source and for the result."""
        from relayout.reports.page import keys_of, node_data

        stored = {value.tensor: value.stored for value in self.report.chart.values}
        if self.naming is None:
            return node_data(self.report, self.layouts, {})
        keys = keys_of(self.model) | self.naming.tensors
        return node_data(self.report, self.naming.of_source(stored) | self.layouts, keys)

    def __repr__(self) -> str:
        """One line, also where a notebook shows it: model and plan are long."""
        return repr(self.report).replace("<Report", "<Result", 1)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report."""
        return self.report._repr_html_()

    def __str__(self) -> str:
        """Return the text that a terminal shows: the report."""
        return str(self.report)

    @property
    @one_error()
    def proto(self) -> onnx.ModelProto:
        """The result as ONNX's protobuf, with all weights in memory; of a `.tflite` what that was written from."""
        from relayout.formats.onnx.parts import to_proto

        if isinstance(self.untouched, onnx.ModelProto):
            copied = type(self.untouched)()
            copied.CopyFrom(self.untouched)
            return copied
        return to_proto(self.model)

    @property
    @one_error()
    def tflite(self) -> bytes:
        """The result as the bytes of a `.tflite` file, with all weights in memory.

        Raises:
            WriteError: the result is ONNX.
        """
        from relayout.formats.tflite.container.writer import to_bytes

        if self.file is None:
            raise WriteError(
                'the result is ONNX: convert with format="tflite" for a .tflite'
                if self.format == "onnx"
                else "the result is in parts: save_parts writes them"
            )
        return to_bytes(self.file)

    def save(self, path: str | Path, *, external_data: bool | None = None, overwrite: bool = False) -> None:
        """Check the model and write it: whole, or not at all.

        Args:
            path: where to; an existing file is replaced when the new one is complete, and gives it its permissions. At
                the place of a symbolic link, the link is replaced.
            external_data: of an ONNX result, weights in `<path>.data` beside it; default: only where the file would
                exceed 2 GB.
            overwrite: whether a file that the model was read from may be replaced, under whatever name.

        Raises:
            WriteError: the model would not be valid, the path has no suffix, or the file cannot be written.
        """
        place = Path(path)
        if not place.suffix and (place.is_file() or not place.exists()):
            raise WriteError(
                f"cannot write '{path}': it has no suffix, which would name its format: end it in .{self.format}"
            )
        self.write(path, external_data=external_data, overwrite=overwrite)

    @one_error()
    def write(self, path: str | Path, *, external_data: bool | None = None, overwrite: bool = False) -> None:
        """Write the model as `save` does, also under a name without a suffix."""
        from relayout.formats.onnx.writing import copy, write

        suffix = Path(path).suffix.lower()
        if suffix == ".ort":
            raise WriteError(f"cannot write '{path}': save .onnx, of which ONNX Runtime's own converter makes an .ort")
        if self.format == "tflite" and self.file is None:
            raise WriteError(f"cannot write '{path}': the result is in parts, which save_parts writes")
        if self.file is not None:
            if suffix == ".onnx":
                raise WriteError(
                    f"cannot write '{path}': the result is a .tflite; give it that suffix, or format='onnx'"
                )
            if external_data:
                raise WriteError(f"cannot write '{path}': external data is for ONNX; a .tflite is one file of any size")
            self._save_tflite(self.file, path, overwrite)
            return
        if suffix == ".tflite":
            raise WriteError(f"cannot write '{path}': the result is ONNX; convert with format='tflite'")
        if self.untouched is not None and not isinstance(self.untouched, onnx.ModelProto) and external_data is None:
            copy(self.untouched, path, sources=() if overwrite else facts_of(self.model).files)
            return
        write(self.model, path, external_data=external_data, overwrite=overwrite, checked=False)

    def _save_tflite(self, file: Model, path: str | Path, overwrite: bool) -> None:
        from relayout.formats.tflite.container.writer import save

        save(file, path, sources=() if overwrite else facts_of(self.model).files)


def refuse_unknown_ranks(parts: Sequence[Part]) -> None:
    """Refuse parts between which values pass whose rank is not known.

    Raises:
        WriteError: there are such values.
    """
    unknown = sorted({v.name or "" for part in parts for v in (*part.inputs, *part.outputs) if v.shape is None})
    if unknown:
        raise WriteError(
            f"parts need the rank of every value that passes between them, which is not known of"
            f" {', '.join(unknown[:5])}: state its shape in the model's value_info, or use regions='functions'"
        )


def target_of(result: Result) -> Target:
    """Return the target that a model was converted for.

    Raises:
        LayoutError: there is none.
    """
    if result.target is None:
        raise LayoutError(
            "parts are what a target runs, and `none` runs nothing: convert with another `target=`, or `--target`"
        )
    return result.target
