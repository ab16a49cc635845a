"""A graph whose layouts are chosen becomes a `.tflite` model: one function per operator, in the graph's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.recognition import PRODUCER, was_tflite
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Signature
from relayout.formats.tflite.container.runtimes import Builtins
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.file_forms import FileForms
from relayout.formats.tflite.exporting.fusing import fuse
from relayout.formats.tflite.exporting.graph_export import GraphExport
from relayout.formats.tflite.exporting.integers import give_meaning
from relayout.formats.tflite.exporting.kernel_types import free_scales
from relayout.formats.tflite.exporting.older import lacking, newer_operators, write_with
from relayout.formats.tflite.exporting.quantizable import STATIC, fuse_lone_activations, make_quantizable
from relayout.formats.tflite.exporting.refusals import UnwritableGraphError, dims_to_fix
from relayout.formats.tflite.exporting.tidying import separate, separate_operands, tidy
from relayout.formats.tflite.exporting.units import QuantizedUnits
from relayout.formats.tflite.exporting.variables import as_ends, write_tables, write_variables
from relayout.layout.normalization import NORMALIZE


@dataclass
class DraftFile:
    """A file under construction: what passes over drafts see and change."""

    graph: GraphExport  # the graphs that were translated, and their variables
    as_source: bool  # whether it was a `.tflite`, and comes back with its own operators
    for_litert: bool  # whether LiteRT alone has to run it
    runtime: str  # the oldest runtime that has to run it; "": any
    quantization: str  # the kind of quantization that follows; "": none
    builtins: Builtins | None  # those that the runtime has; None: all
    forms: FileForms  # the forms of operators that the target takes
    changed: list[DraftTensor] = field(default_factory=list)
    """Tensors that hold other numbers than the values of the graph, since an activation was fused."""
    variables_as_ends: ExitStack = field(default_factory=ExitStack)

    def each(self, change: Callable[[Draft], object]) -> None:
        """Change each graph of the file."""
        for draft in self.graph.program:
            change(draft)


def _fuse(file: DraftFile) -> None:
    options = {"drops_axes": file.as_source, "for_litert": file.for_litert}
    file.each(lambda draft: file.changed.extend(fuse(draft, file.runtime, **options)))


def _state_interface_scales(file: DraftFile) -> None:
    graph = file.graph
    normalized = {value.name for value in graph.model.graph.inputs if NORMALIZE in value.metadata_props}
    give_meaning(graph.draft, normalized)


def _write_variables(file: DraftFile) -> None:
    file.variables_as_ends.close()
    write_variables(file.graph.program, file.graph.variables)


DRAFT_PASSES: Mapping[str, Callable[[DraftFile], object]] = {  # name -> pass over the draft of a file, in place
    "tidy": lambda file: file.each(partial(tidy, for_litert=file.for_litert)),
    "quantizable": lambda file: file.each(
        partial(make_quantizable, quantization=file.quantization, as_source=file.as_source, for_litert=file.for_litert)
    ),
    "target-forms": lambda file: file.each(file.forms.rewrite),
    "fuse": _fuse,
    "fuse-lone-activations": lambda file: file.each(
        partial(fuse_lone_activations, quantization=file.quantization, for_litert=file.for_litert)
    ),
    "free-scales": lambda file: file.each(free_scales),
    "interface-scales": _state_interface_scales,
    "write-variables": _write_variables,
    "write-tables": lambda file: write_tables(file.graph.program),
    "finish-target-forms": lambda file: file.forms.finish(file.graph.program),
    "runtime-builtins": lambda file: file.each(partial(write_with, builtins=file.builtins)),
    "separate-operands": lambda file: file.each(separate_operands),
    "separate-memory": lambda file: file.each(separate),
}


def export(
    model: ir.Model,  # its layouts are those of TensorFlow Lite; every value has a type and a rank
    *,
    units: QuantizedUnits | None = None,  # the operators that run on integers
    unsigned: bool = False,  # whether unsigned integers stay so, for kernels whose weights have zero points
    # whether LiteRT alone has to run it, which has kernels that other runtimes of such files lack
    for_litert: bool = True,
    passes: Sequence[str] = (),  # names of `DRAFT_PASSES`, in order
    signature: str = "serving_default",  # the key of the signature
    # name -> bytes of what the file says beside its graph, made of: name of a tensor -> the values that it is
    describe: Callable[[Mapping[str, list[ir.Value]]], Mapping[str, bytes]] | None = None,
    # input or output -> its tensor's name, where that is another one and no other tensor has it
    tensor_names: Mapping[str, str] | None = None,
    # operators that become CUSTOM ones, by name -> their domain; "" for any
    custom_ops: Mapping[str, str] | None = None,
    runtime: str = "",  # the oldest runtime that has to run it, such as `2.14`; "": any
    quantization: str = "",  # the kind of quantization that follows; "": none
    builtins: Builtins | None = None,  # those that the runtime has; None: all
    # the forms of operators that a target takes; None: those that LiteRT's CPU kernels run
    file_forms: FileForms | None = None,
) -> Model:
    """Translate a model operator by operator.

    Raises:
        UnwritableGraphError: operators that cannot be written, all of them with reason and count.
    """
    forms = file_forms or FileForms()
    shared: dict[str, Any] = {"custom_ops": custom_ops, "runtime": runtime, "unrolls": forms.unrolls}
    shared["for_integers"] = quantization in STATIC
    shared["has_lstm"] = builtins is None or builtins.has("UNIDIRECTIONAL_SEQUENCE_LSTM", TensorType.FLOAT32)
    graph = GraphExport(model, model.graph, units or {}, unsigned=unsigned, **shared)
    graph.run()
    if graph.refusals.reasons:
        cure = dims_to_fix(graph.refusals.open_extents, model.graph.inputs)
        raise UnwritableGraphError(graph.refusals.reasons, graph.refusals.values, cure)
    as_source = was_tflite(model.metadata_props)
    file = DraftFile(graph, as_source, for_litert, runtime, quantization, builtins, forms)
    file.variables_as_ends.enter_context(as_ends(graph.draft, graph.variables))
    for name in passes:
        DRAFT_PASSES[name](file)
    file.variables_as_ends.close()
    graph.name_ends(tensor_names or {})
    subgraphs = tuple(draft.finish(f"subgraphs[{place}]") for place, draft in enumerate(graph.program))
    subgraph = subgraphs[0]
    inputs, outputs = (
        tuple((value.name or "", index) for value, index in zip(values, indices, strict=True))
        for values, indices in ((model.graph.inputs, subgraph.inputs), (model.graph.outputs, subgraph.outputs))
    )
    ports = Signature(signature, 0, inputs, outputs)
    unchanged_names = {tensor.name for tensor in subgraph.tensors} - {tensor.name for tensor in file.changed}
    said = {} if describe is None else describe(graph.values_of(unchanged_names))
    notes = tuple((name, np.frombuffer(data, np.uint8)) for name, data in said.items())
    written = finished(Model(PRODUCER, subgraphs, (ports,), notes))
    if missing := {**newer_operators(written, runtime), **lacking(written, builtins)}:
        raise UnwritableGraphError(missing, set())
    return written
