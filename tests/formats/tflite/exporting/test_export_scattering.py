"""Updates at a known number of places in a tensor whose extents are known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_running import agrees

from small import build
from text_form import floats


@pytest.mark.parametrize("inputs", ["i", "iu", ""])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_every_update_is_there(inputs: str, reduction: str) -> None:
    """LiteRT lost all but the first where marks for them were computed of the places."""
    given: dict[str, Any] = {"i": np.array([[1, -3]], np.int64), "u": floats(1, 2)}
    text = {"i": ", int64[1,2] i", "u": ", float[k,2] u"}
    constants = {name: value for name, value in given.items() if name not in inputs}
    source = build(
        f"float[n,c] x{''.join(text[name] for name in inputs)}",
        f'y = ScatterElements<axis=1, reduction="{reduction}">(x, i, u)',
        constants,
    )
    feed = {name: given[name] for name in inputs}
    for extents in ((11, 9), (1, 5), (3, 6)):
        agrees(source, {"x": floats(*extents), **feed})
