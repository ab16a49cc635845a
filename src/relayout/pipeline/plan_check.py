"""The verb `check`: a plan file against the model that it was made for."""

from __future__ import annotations

import json
from pathlib import Path

from relayout.errors import ReadError, in_file
from relayout.formats.stored import open_stored
from relayout.infer import plan_file
from relayout.infer.plan_file import Checked
from relayout.pipeline.lowering_list import before_layouts
from relayout.pipeline.planning import own_dequantizers, sites_of
from relayout.pipeline.request import Request, Source
from relayout.pipeline.source import read


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
        model = read(source, request.imports, request.layout.wishes, request.format)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ReadError(f"{path} is not a whole plan ({error})") from error
    before_layouts(model, request)
    own_dequantizers(model, request)
    return plan_file.check(data, sites_of(model, request))
