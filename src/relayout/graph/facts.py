"""The facts about a model beside its graph: where it came from, what its file states, what was done to it so far."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir

KEY = "relayout.facts"
"""The one key of `ir.Model.meta` that is ours. `meta` lives in memory only, and moves along with a clone."""

Identity = tuple[int, int]
"""Device and number of a file: the same for all of its names, hard and symbolic links included."""


class ModelFacts(NamedTuple):
    """Facts about a model that its graph does not hold.

    Args:
        origin: the source that it was read from, a path or a model in memory; None if it was not read.
        files: the files that it was read from, its external data among them. A result must not overwrite them.
        is_tflite: it was imported from a `.tflite`, whose tensors are NHWC and never say so.
        has_external_data: it keeps weights in other files, so a copy of its own file would not be whole.
        ort_format: the version of the ORT-format file that it was read from; None of any other source.
        is_unlike_source: it is read as other operators, or of another format, than its source has, so a copy of the
            source would not be it.
        is_raised: its source is of opset 1 to 6, which runtimes need not know, and it is read in a newer one.
        is_annotated: its main graph may have quantization annotations. Where it has none, nobody need look.
        states_no_shapes: its file states no types and shapes of interior values, so neither does the result.
        contradicted: values of which its file states types or shapes that their operators do not give.
        unimplied: values of which its file states extents that do not follow from its inputs.
        fixed_dims: dynamic dimensions that were fixed before an operator was read.
        opened_places: the axes of inputs that were asked for, `input:axis` -> name or number.
        opened: the fixed dimensions that were opened: `shapes.Opened`.
        calls: calls of functions that were replaced by the functions' bodies: `formats.onnx.calls.Calls`.
        begun_anew: variables of a `.tflite` that begin each run anew, where the source goes on.
        lost_annotations: values whose quantization annotation says nothing of the result.
        notes: sentences for the report.
    """

    origin: str | Path | onnx.ModelProto | ir.Model | None = None
    files: frozenset[Identity] = frozenset()
    is_tflite: bool = False
    has_external_data: bool = False
    ort_format: int | None = None
    is_unlike_source: bool = False
    is_raised: bool = False
    is_annotated: bool = True
    states_no_shapes: bool = False
    contradicted: Sequence[str] = ()
    unimplied: frozenset[str] = frozenset()
    fixed_dims: frozenset[str] = frozenset()
    opened_places: Mapping[str, int | str] = {}
    opened: tuple[Any, ...] = ()
    calls: object | None = None
    begun_anew: Sequence[str] = ()
    lost_annotations: Sequence[str] = ()
    notes: tuple[str, ...] = ()


NO_FACTS = ModelFacts()


def facts_of(model: ir.Model) -> ModelFacts:
    """Return what is known of a model: nothing, of one that was not read by relayout."""
    facts: ModelFacts = model.meta.get(KEY, NO_FACTS)
    return facts


def add_facts(model: ir.Model, **changes: Any) -> None:
    """Replace facts about a model."""
    model.meta[KEY] = facts_of(model)._replace(**changes)


def copy_facts(source: ir.Model, model: ir.Model) -> None:
    """Give a model that was made from another one what is known of that."""
    model.meta[KEY] = facts_of(source)


def add_notes(model: ir.Model, *notes: str) -> None:
    """Add sentences to those that the report of a model will show."""
    add_facts(model, notes=(*facts_of(model).notes, *notes))
