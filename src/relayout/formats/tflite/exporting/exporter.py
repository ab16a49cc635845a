"""A graph whose layouts are chosen becomes a `.tflite` model: one function per operator, in the graph's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from relayout.formats.recognition import PRODUCER, was_tflite
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Signature
from relayout.formats.tflite.container.runtimes import Builtins
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.file_forms import FileForms
from relayout.formats.tflite.exporting.graph_export import FileRuntime, GraphExport
from relayout.formats.tflite.exporting.older import lacking, newer_operators
from relayout.formats.tflite.exporting.quantizable import STATIC
from relayout.formats.tflite.exporting.refusals import UnwritableGraphError, dims_to_fix
from relayout.formats.tflite.exporting.units import QuantizedUnits
from relayout.formats.tflite.exporting.variables import DraftVariables, as_ends
from relayout.graph.passes import Pass, Stage


@dataclass
class DraftFile:
    """A file under construction: what passes over drafts see and change."""

    model: ir.Model  # the model
    program: list[Draft]  # the graphs that were translated
    variables: DraftVariables  # those of the first graph
    as_source: bool  # whether it was a `.tflite`, and comes back with its own operators
    for_litert: bool  # whether LiteRT alone has to run it
    runtime: str  # the oldest runtime that has to run it; "": any
    quantization: str  # the kind of quantization that follows; "": none
    builtins: Builtins | None  # those that the runtime has; None: all
    forms: FileForms  # the forms of operators that the target takes
    changed: list[DraftTensor] = field(default_factory=list)
    """Tensors that hold other numbers than the values of the graph, since an activation was fused."""
    variables_as_ends: ExitStack = field(default_factory=ExitStack)

    def run(self, each: Pass) -> None:
        """Run a pass: once, or for each graph of the file."""
        for draft in self.program if "draft" in each.parameters() else (None,):
            each.run(self, draft=draft)


def export(
    model: ir.Model,  # its layouts are those of TensorFlow Lite; every value has a type and a rank
    *,
    units: QuantizedUnits | None = None,  # the operators that run on integers
    unsigned: bool = False,  # whether unsigned integers stay so, for kernels whose weights have zero points
    # whether LiteRT alone has to run it, which has kernels that other runtimes of such files lack
    for_litert: bool = True,
    passes: Sequence[Pass] = (),  # those over drafts, and over what is written, in order
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
    has_lstm = builtins is None or builtins.has("UNIDIRECTIONAL_SEQUENCE_LSTM", TensorType.FLOAT32)
    kernels = FileRuntime(unsigned, custom_ops or {}, runtime, forms.unrolls, has_lstm, quantization in STATIC)
    graph = GraphExport(model, model.graph, units or {}, kernels)
    graph.run()
    if graph.refusals.reasons:
        cure = dims_to_fix(graph.refusals.open_extents, model.graph.inputs)
        raise UnwritableGraphError(graph.refusals.reasons, graph.refusals.values, cure)
    as_source = was_tflite(model.metadata_props)
    file = DraftFile(
        model, graph.program, graph.variables, as_source, for_litert, runtime, quantization, builtins, forms
    )
    file.variables_as_ends.enter_context(as_ends(graph.draft, graph.variables))
    for each in passes:
        if each.stage == Stage.DRAFT:
            file.run(each)
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
    for each in passes:
        if each.stage == Stage.WRITTEN:
            written = each.run(None, file=written, builtins=builtins)
    if missing := {**newer_operators(written, runtime), **lacking(written, builtins)}:
        raise UnwritableGraphError(missing, set())
    return written
