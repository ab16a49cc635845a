"""A graph whose layouts are chosen becomes a `.tflite` model: one function per operator, in the graph's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.own_results import PRODUCER, was_tflite
from relayout.formats.tflite.builtin_set import Builtins
from relayout.formats.tflite.container.model import Model, Signature
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.exporting.file_forms import FileForms
from relayout.formats.tflite.exporting.fusing import fuse
from relayout.formats.tflite.exporting.graph_export import GraphExport
from relayout.formats.tflite.exporting.integers import give_meaning
from relayout.formats.tflite.exporting.kernel_types import free_scales
from relayout.formats.tflite.exporting.older import lacking, newer_operators, write_with
from relayout.formats.tflite.exporting.quantizable import fuse_lone_activations, make_quantizable
from relayout.formats.tflite.exporting.refusals import UnwritableGraphError, dims_to_fix
from relayout.formats.tflite.exporting.shared_memory import separate
from relayout.formats.tflite.exporting.tidying import separate_operands, tidy
from relayout.formats.tflite.exporting.units import QuantizedUnits
from relayout.formats.tflite.exporting.variables import as_ends, write_tables, write_variables
from relayout.layout.normalization import NORMALIZE


def export(
    model: ir.Model,
    *,
    units: QuantizedUnits | None = None,
    unsigned: bool = False,
    for_litert: bool = True,
    signature: str = "serving_default",
    describe: Callable[[Mapping[str, list[ir.Value]]], Mapping[str, bytes]] | None = None,
    names: Mapping[str, str] | None = None,
    tensor_names: Mapping[str, str] | None = None,
    custom_ops: Mapping[str, str] | None = None,
    runtime: str = "",
    quantization: str = "",
    builtins: Builtins | None = None,
    file_forms: FileForms | None = None,
) -> Model:
    """Translate a model operator by operator.

    Args:
        model: its layouts are those of TensorFlow Lite; every value has a type and a rank.
        units: the operators that run on integers.
        unsigned: whether unsigned integers stay so, for kernels whose weights have zero points.
        for_litert: whether LiteRT alone has to run it, which has kernels that other runtimes of such files lack.
        signature: the key of the signature.
        describe: name -> bytes of what the file says beside its graph, made of: name of a tensor -> the values that it
            is.
        names: input or output -> its name in the signature, where that is another one.
        tensor_names: input or output -> its tensor's name, where that is another one and no other tensor has it.
        custom_ops: operators that become CUSTOM ones, by name -> their domain; "" for any.
        runtime: the oldest runtime that has to run it, such as `2.14`; "": any.
        quantization: the kind of quantization that follows; "": none.
        builtins: those that the runtime has; None: all.
        file_forms: the forms of operators that a target takes; None: those that LiteRT's CPU kernels run.

    Raises:
        UnwritableGraphError: operators that cannot be written, all of them with reason and count.
    """
    forms = file_forms or FileForms()
    shared: dict[str, Any] = {"custom_ops": custom_ops, "runtime": runtime, "unrolls": forms.unrolls}
    graph = GraphExport(model, model.graph, units or {}, unsigned=unsigned, **shared)
    graph.run()
    if graph.refusals.reasons:
        cure = dims_to_fix(graph.refusals.open_extents, model.graph.inputs)
        raise UnwritableGraphError(graph.refusals.reasons, graph.refusals.values, cure)
    with as_ends(graph.draft, graph.variables):
        for draft in graph.program:
            tidy(draft, for_litert=for_litert)
            # A .tflite comes back with its own operators, unless it is quantized.
            as_source = was_tflite(model.metadata_props)
            make_quantizable(draft, quantization, as_source=as_source, for_litert=for_litert)
            forms.rewrite(draft)
        taken_in = {"drops_axes": was_tflite(model.metadata_props), "for_litert": for_litert}
        changed = [tensor for draft in graph.program for tensor in fuse(draft, runtime, **taken_in)]
        for draft in graph.program:
            fuse_lone_activations(draft, quantization)
            free_scales(draft)
        give_meaning(graph.draft, {value.name for value in model.graph.inputs if NORMALIZE in value.metadata_props})
    write_variables(graph.program, graph.variables)
    write_tables(graph.program)
    forms.finish(graph.program)
    for draft in graph.program:
        write_with(draft, builtins)
    for draft in graph.program:
        separate_operands(draft)
        separate(draft)
    graph.name_ends(tensor_names or {})
    subgraphs = tuple(draft.finish(f"subgraphs[{place}]") for place, draft in enumerate(graph.program))
    subgraph = subgraphs[0]
    called = names or {}

    def ends(values: Any, indices: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        listed = [(value.name or "") for value in values]
        return tuple((called.get(name, name), index) for name, index in zip(listed, indices, strict=True))

    ports = Signature(
        signature, 0, ends(model.graph.inputs, subgraph.inputs), ends(model.graph.outputs, subgraph.outputs)
    )
    kept = {tensor.name for tensor in subgraph.tensors} - {tensor.name for tensor in changed}
    said = {} if describe is None else describe(graph.values_of(kept))
    notes = tuple((name, np.frombuffer(data, np.uint8)) for name, data in said.items())
    file = finished(Model(PRODUCER, subgraphs, (ports,), notes))
    if missing := {**newer_operators(file, runtime), **lacking(file, builtins)}:
        raise UnwritableGraphError(missing, set())
    return file
