"""Paths that tests share."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from relayout import cli
from relayout.quantization.request import MissingQuantizerError

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("relayout", deadline=None)  # a loaded machine is no finding
settings.load_profile("relayout")

SHARED = Path(__file__).parents[2] / "shared" / "models" / "tflite"
"""Real models, beside the project; tests that need them skip where they are absent."""


KERAS = Path(__file__).parent / "data" / "keras"
"""Tiny Keras networks, made by `bench/make_keras.py --tiny`."""


def shared_models(*folders: str) -> list[Path]:
    """The models of some folders, in order; none where they are absent."""
    return [path for folder in folders for path in sorted((SHARED / folder).glob("*.tflite"))]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the instances of a sampled test every n-th runs by default; the others are slow."""
    seen: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            if seen.setdefault(name, 0) % mark.kwargs["every"]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """A test that quantizes skips where the quantizer is not installed."""
    try:
        return (yield)
    except MissingQuantizerError as error:
        pytest.skip(str(error))


TERMINAL = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM", "COLUMNS", "LINES")
"""What a caller's terminal says of itself, to which `rich` listens."""


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever terminal the tests are called from, they see the same."""
    for name in TERMINAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture(autouse=True, scope="session")
def reports_are_those_of_files() -> Iterator[None]:
    """Every `.tflite` that a test converts has as many TRANSPOSEs and bytes as its report says."""
    from moved_bytes import reports_are_held_to_files

    with reports_are_held_to_files():
        yield


class Ran:
    """Exit code and what was printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def relayout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    def call(*arguments: object) -> Ran:
        monkeypatch.setattr("sys.argv", ["relayout", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call
