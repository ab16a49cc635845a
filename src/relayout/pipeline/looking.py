"""The verbs that look at files and write none: `diff`, and `relayout FILE`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.errors import ReadError, RelayoutError, in_file
from relayout.formats.recognition import is_tflite
from relayout.formats.stored import open_stored
from relayout.graph.facts import facts_of
from relayout.infer import plan_file
from relayout.infer.plan_file import Checked
from relayout.layout.stored_as import SIGNATURE
from relayout.pipeline.conversion import explain
from relayout.pipeline.lowering_list import before_layouts
from relayout.pipeline.planning import own_dequantizers, planned, sites_of
from relayout.pipeline.request import ImportOptions, Request, Source
from relayout.pipeline.source import read
from relayout.progress import say
from relayout.reports.drawing import Drawing

if TYPE_CHECKING:
    from relayout.reports.differing import Diff, Looked
    from relayout.reports.inspection import Inspection


# The verb `check`: a plan file against the model that it was made for.


def check_plan(path: str | Path, source: Source) -> Checked:
    """Check a plan file against the model that it was made for, without the solver.

    Raises:
        ReadError: either cannot be read, the plan is of another model, or its certificate is not valid.
    """
    try:
        file = open_stored(Path(path))
        data = json.loads(file.read(0, file.size))
    except (OSError, ValueError, RecursionError):
        raise ReadError(f"{path} is no plan: it is not JSON", hint="the plan comes first, then the model") from None
    with in_file(str(path)):
        options = plan_file.options_of(data)
    try:
        request = Request.of_json(options)
        model = read(source, request.imports, request.layout.desired, request.format)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ReadError(f"{path} is not a whole plan ({error})") from error
    before_layouts(model, request)
    own_dequantizers(model, request)
    return plan_file.check(data, sites_of(model, request))


def diff(a: str | Path, b: str | Path) -> Diff:
    """Compare two model files: operators, attributes, types, shapes, layouts.

    Raises:
        ReadError: one is not a model, or is damaged.
        UnsupportedError: a `.tflite` holds operators that cannot be read.
    """
    from relayout.formats.tflite.container.loading import load
    from relayout.formats.tflite.importing.importer import key_in
    from relayout.formats.tflite.provenance import load_provenance
    from relayout.reports import differing

    say("reading")
    second = read(Path(b))
    # A result names the signature that it was made of, unless that is of its source's first subgraph.
    of_file = load_provenance(load(Path(b))).signature if is_tflite(Path(b)) else None
    first = read(Path(a), ImportOptions(signature=key_in(Path(a), second.metadata_props.get(SIGNATURE, of_file))))
    return differing.diff(_looked(Path(a), first), _looked(Path(b), second))


def _looked(path: Path, model: ir.Model) -> Looked:
    from relayout.reports.differing import Looked, attributes_of

    attributes = attributes_of(model.graph)
    plan = planned(model, Request())
    return Looked(str(path), Drawing(plan.plan, plan.axes).chart, attributes, _own_transposes(path, model))


def _own_transposes(path: Path, model: ir.Model) -> int | None:
    """Return how many Transposes a `.tflite` has that move data; None of ONNX."""
    if not facts_of(model).is_tflite:
        return None
    from relayout.formats.tflite.container.loading import load
    from relayout.formats.tflite.container.transposes import transposes

    return transposes(load(path))[0]


def inspect(path: str | Path) -> Inspection:
    """Describe a file, and what conversions of it would win. Where it cannot be converted, that is said.

    Raises:
        ReadError: it is not a model, or is damaged.
    """
    from relayout.reports import inspection

    path = Path(path)
    if is_tflite(path):
        with in_file(str(path)):
            looked = inspection.tflite(path)
    else:
        from relayout.formats.onnx.reading import read as read_onnx

        looked = inspection.onnx(path, read_onnx(path))
    try:
        return looked.with_reports(explain(path), explain(path, io="convert"))
    except RelayoutError as error:
        return replace(looked, problem=str(error))
