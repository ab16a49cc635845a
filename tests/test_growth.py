"""Work grows with the graph, not with its square: calls are counted, not seconds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import FrameType, ModuleType

import relayout

SCALE = Path(__file__).parents[1] / "bench" / "scale.py"
SMALL, TIMES = 300, 4


def scale(bench: Path) -> ModuleType:
    """`bench/scale.py`, whose neighbours are modules of its folder."""
    sys.path.insert(0, str(bench.parent))
    try:
        found = importlib.util.spec_from_file_location("scale", bench)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(bench.parent))
    return module


def calls(count: int) -> dict[str, int]:
    """Module -> calls of functions, C's among them, that one `optimize` of so many nodes makes in it."""
    model, found = scale(SCALE).residual_network(count), dict[str, int]()

    def seen(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event in ("call", "c_call") and name.startswith("relayout."):
            found[name] = found.get(name, 0) + 1

    sys.setprofile(seen)
    try:
        result = relayout.optimize(model)
    finally:
        sys.setprofile(None)
    assert result.report.proved
    assert result.report.transposes < result.report.source_transposes
    return found


def test_calls_grow_with_nodes() -> None:
    calls(60)  # what is found once: rules, schemas
    small, large = calls(SMALL), calls(TIMES * SMALL)
    grown = {name: round(count / small.get(name, 1), 1) for name, count in large.items() if count > 2_000}
    assert grown
    assert {name: times for name, times in grown.items() if times > 1.6 * TIMES} == {}
