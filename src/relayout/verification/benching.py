"""Two models side by side: how long a run of each takes in its own runtime, in turns, as a ratio with its spread."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from relayout.arguments import ArgumentKind, checked, mapping, whole
from relayout.errors import MissingRuntimeError, ReadError, RelayoutError, nearest
from relayout.formats.tflite.importing.importer import key_in
from relayout.light_dataclass import dataclass
from relayout.progress import say
from relayout.terminal import count_of
from relayout.verification.feeds import EXTENTS, dynamic_shape, random_feed, user_feeds
from relayout.verification.runtimes import ChildModel, FailedError
from relayout.verification.side import ONNX_RUNTIME, Array, Feeds, RunnableModel, open_side

PACKAGES = {ONNX_RUNTIME: "onnxruntime", "LiteRT": "ai_edge_litert", "TensorFlow": "tensorflow.lite.python"}
TURN = 0.02  # seconds of one turn: long beside the question to the process that runs the models
LEAST_TURNS = 5
SECONDS = ArgumentKind("seconds, a number above 0", lambda value: isinstance(value, int | float) and 0 < value < 1e6)


@dataclass(frozen=True)
class Timed:
    """One of two models."""

    model: str  # its path
    runtime: str  # what ran it, with its version
    milliseconds: float  # of one run, the median of all turns


@dataclass(frozen=True)
class Bench:
    """The time of a run of `b` beside one of `a`."""

    a: Timed  # the first model
    b: Timed  # the second
    ratio: float  # the time of `b` in parts of that of `a`: the median over turns
    low: float  # the quarter of the turns with the least ratios lies below
    high: float  # the quarter with the greatest lies above
    turns: int  # how often each ran
    threads: int  # of each runtime

    def __str__(self) -> str:
        """One line for a person, then one for each model."""
        ratio = f"{Path(self.b.model).name} takes {self.ratio:.2f} of the time of {Path(self.a.model).name}"
        spread = f"half of {self.turns} turns between {self.low:.2f} and {self.high:.2f}"
        threads = count_of(self.threads, "thread")
        rows = (f"{each.milliseconds:10.3f} ms  {each.model} in {each.runtime}" for each in (self.a, self.b))
        return "\n".join((f"{ratio} ({spread}; {threads})", *rows))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        models = {name: vars(timed) for name, timed in (("a", self.a), ("b", self.b))}
        figures = ("ratio", "low", "high", "turns", "threads")
        return {**{name: getattr(self, name) for name in figures}, **models}


@checked(
    inputs=mapping("{'x': array} or {'x': 'x.npy'}", lambda value: value is not None),
    threads=whole(1, 1024),
    seconds=SECONDS,
    seed=whole(0),
)
def bench(
    a: str | Path,  # a `.tflite` or `.onnx` file
    b: str | Path,  # the file to compare with it
    *,
    # input name -> array or path to a `.npy`, for the model that has an input of that name; others are random. An open
    # extent gets a likely size.
    inputs: Mapping[str, Array | str | Path] | None = None,
    threads: int = 1,  # of each runtime
    seconds: float = 3.0,  # how long to measure, in all
    seed: int = 0,  # of the random inputs
) -> Bench:
    """Run two models in turns, each in its own runtime, and compare the time that a run takes.

    Raises:
        ReadError: one is not a model, or its runtime cannot load or run it.
        MissingRuntimeError: a runtime is not installed.
        RelayoutError: no input can be made for one, or none of the two has an input of a given name.
    """
    say("loading")
    sizes: dict[str, int] = {}
    with open_side(b) as right, open_side(a, key_in(Path(a), right.signature), other=right) as left:
        models = [
            _Model(Path(path), side, inputs or {}, threads, seed, sizes) for path, side in ((a, left), (b, right))
        ]
    known = dict.fromkeys(name for model in models for name in model.names)
    for name in inputs or {}:
        if name not in known:
            raise RelayoutError(f"no input of the two models is called '{name}'{nearest(name, known)}")
    for model in models:
        model.time()  # the first runs are slower
    say("measuring")
    turns: list[tuple[float, float]] = []
    spent = 0.0
    while len(turns) < LEAST_TURNS or spent < seconds:
        # Which one comes first alternates, so that neither always finds the caches of the other.
        order = (0, 1) if len(turns) % 2 else (1, 0)
        times = {place: models[place].time() for place in order}
        turns.append((times[0], times[1]))
        spent += 2 * max(TURN, *times.values())
        say("measuring", min(int(10 * spent), int(10 * seconds)), int(10 * seconds))
    ratios = [second / first for first, second in turns]
    low, _, high = quantiles(ratios, n=4)
    timed = [
        Timed(str(model.path), model.runtime, 1000 * median(turn[place] for turn in turns))
        for place, model in enumerate(models)
    ]
    return Bench(timed[0], timed[1], median(ratios), low, high, len(turns), threads)


class _Model:
    def __init__(
        self,
        path: Path,
        side: RunnableModel,
        inputs: Mapping[str, Array | str | Path],
        threads: int,
        seed: int,
        sizes: dict[str, int],
    ) -> None:
        self.path = path
        name, version = side.runtime
        self.runtime = f"{name} {version}"
        self.names = [name for value in side.inputs for name in value.all_names]
        own = {name: array for name, array in inputs.items() if name in self.names}
        feeds = {**side.initial, **user_feeds(own, side.inputs)}
        failed: FailedError | None = None
        for extents in EXTENTS_TRIED:
            drawn = _drawn(side, feeds, np.random.default_rng(seed), dict(sizes), extents)
            try:
                self._child_model = ChildModel("prepared", PACKAGES[name], side.loaded, threads, drawn)
                self._child_model.open()
                break
            except FailedError as error:
                failed = error
                if error.kind in ("ImportError", "ModuleNotFoundError"):
                    raise MissingRuntimeError(f"{name} is not installed: {error}") from None
        else:
            raise ReadError(f"{name} cannot run it: {failed}", where=str(path))
        for value in side.inputs:
            sizes.update(zip(value.symbols, drawn[value.name].shape, strict=False))

    def time(self) -> float:
        """Return the seconds of a run, the mean of a turn.

        Raises:
            ReadError: the runtime fails.
        """
        try:
            seconds: float = self._child_model.ask("timed", TURN)
        except FailedError as error:
            raise ReadError(f"its runtime fails: {error}", where=str(self.path)) from None
        return seconds


EXTENTS_TRIED = ((1, 1, 1), *EXTENTS)
"""Sizes of open extents, until the model runs: for those of rank 4, of higher ranks, and of others."""


def _drawn(
    side: RunnableModel, feeds: Feeds, rng: np.random.Generator, sizes: dict[str, int], extents: tuple[int, int, int]
) -> dict[str, Array]:
    all_feeds = dict(feeds)
    for value in side.inputs:
        if value.name not in all_feeds:
            shape = value.fallback if value.fallback is not None else dynamic_shape(value, sizes, extents)
            all_feeds[value.name] = random_feed(value, tuple(shape), rng, signed=False)
    return all_feeds
