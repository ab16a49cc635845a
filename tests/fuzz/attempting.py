"""What a reader owes any bytes: a model or a `RelayoutError`, soon, and with little memory."""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import mutating
import numpy as np
import written

from relayout.errors import RelayoutError
from relayout.internal_errors import InternalError

SECONDS = 10.0
"""Of processor time: no input may take longer."""

MEMORY = 1 << 30
"""Bytes that a run may take beyond what it began with."""

ROOT = Path(__file__).parents[2]
FINDINGS = Path(__file__).parent / "findings"
"""Inputs that once were answered by anything else: `NAME.tflite`, `NAME.onnx`, `NAME.ort`."""

ENDINGS = (".tflite", ".onnx", ".ort")

SAMPLE = 5
"""One input in so many of those that can be read goes through `relayout.convert` too."""


class FindingError(AssertionError):
    """An input that was answered otherwise than it should be."""


@dataclass
class Seeds:
    """The models that damage begins with: name -> bytes, and the damage that fits each."""

    models: dict[str, bytes] = field(default_factory=dict)
    _damages: dict[str, mutating.Damage] = field(default_factory=dict)

    @staticmethod
    def small(limit: int = 30_000, more: Sequence[Path] = ()) -> Seeds:
        """Small models: committed `.tflite` files, what the smaller of them become in ONNX, and written ONNX models,
        as ONNX Runtime's files, too.

        Args:
            limit: bytes of a file.
            more: other files.
        """
        import relayout

        paths = sorted([*(ROOT / "models").glob("*.tflite"), *(ROOT / "tests" / "data" / "keras").glob("*.tflite")])
        paths = [path for path in (*paths, *more) if path.stat().st_size <= limit]
        models = {path.name: path.read_bytes() for path in paths if path.suffix in (".tflite", ".onnx")}
        with tempfile.TemporaryDirectory() as folder:
            for path in paths:
                rarely = path.name.count("float16") or "dynamic" in path.name
                if path.stat().st_size > min(limit, 18_000) or rarely or path.suffix != ".tflite":
                    continue
                try:
                    result = relayout.convert(path)
                except InternalError:
                    raise
                except RelayoutError:
                    continue
                target = Path(folder) / f"{path.stem}.onnx"
                result.save(target)
                if target.stat().st_size <= 2 * limit:
                    models[target.name] = target.read_bytes()
        return Seeds(models | written.models() | written.ort_models())

    def damage(self, name: str) -> mutating.Damage:
        """What damages the model of that name."""
        if name not in self._damages:
            kind = mutating.messages if name.endswith(".onnx") else mutating.flatbuffers
            self._damages[name] = kind(self.models[name])
        return self._damages[name]

    @property
    def smallest(self) -> tuple[tuple[str, bytes], ...]:
        """The smallest `.tflite`, the smallest `.onnx` that one became, and the smallest `.ort`."""
        by_size = sorted(self.models.items() - written.models().items(), key=lambda item: len(item[1]))
        return tuple(next(item for item in by_size if item[0].endswith(end)) for end in ENDINGS)


class Attempts:
    """Reads input after input and counts the answers.

    Args:
        folder: where inputs are put, as files, since `.onnx` is read from paths.
        sample: of inputs that can be read, one in so many is converted and written.
    """

    def __init__(self, folder: Path, sample: int = SAMPLE) -> None:
        self.folder, self.sample = folder, sample
        (folder / "data").write_bytes(written.DATA)
        self.answers: Counter[str] = Counter()
        self.slowest = 0.0
        self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @property
    def inputs(self) -> int:
        """How many were tried."""
        return sum(count for answer, count in self.answers.items() if not answer.startswith("converted: "))

    @property
    def memory(self) -> int:
        """Bytes that the largest input took beyond what the process had at first."""
        unit = 1 if sys.platform == "darwin" else 1024
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before) * unit

    def attempt(self, name: str, data: bytes, convert: bool | None = None) -> str:
        """Read one input.

        Raises:
            FindingError: it raised another error than `RelayoutError`, or took too long or too much.
        """
        began = time.process_time()
        try:
            answer = self._answer(name, data, convert)
        except FindingError:
            raise
        except Exception as error:
            raise FindingError(f"{type(error).__name__}: {error}") from error
        seconds = time.process_time() - began
        self.slowest = max(self.slowest, seconds)
        if seconds > SECONDS:
            raise FindingError(f"took {seconds:.1f} s")
        if self.memory > MEMORY:
            raise FindingError(f"took {self.memory >> 20} MB")
        self.answers[answer] += 1
        return answer

    def _answer(self, name: str, data: bytes, convert: bool | None) -> str:
        from relayout.formats import tflite
        from relayout.formats.onnx.reading import read as read_onnx

        path = self.folder / ("input" + Path(name).suffix)
        path.write_bytes(data)
        try:
            if path.suffix == ".tflite":
                tflite.read(data)
            else:
                read_onnx(path)
        except InternalError as error:
            raise error.cause from None
        except RelayoutError as error:
            self._one_line(error)
            return type(error).__name__
        wanted = not (self.answers["read"] % self.sample) if convert is None else convert
        if wanted:
            self.answers[f"converted: {self._converted(path)}"] += 1
        return "read"

    def _converted(self, path: Path) -> str:
        import relayout

        converted = sum(count for answer, count in self.answers.items() if answer.startswith("converted: "))
        ending: Literal["tflite", "onnx"] = "tflite" if path.suffix != ".tflite" and converted % 2 else "onnx"
        try:
            relayout.convert(path, format=ending, time_limit=2).save(self.folder / f"result.{ending}")
        except InternalError as error:
            raise error.cause from None
        except RelayoutError as error:
            self._one_line(error)
            return type(error).__name__
        return "written"

    @staticmethod
    def _one_line(error: RelayoutError) -> None:
        if "\n" in str(error):
            raise FindingError(f"more than one line: {error!r}")


def damaged(seeds: Seeds, seed: int) -> Iterator[tuple[str, bytes]]:
    """Endless inputs, more of them from smaller models: name of the one that was damaged, bytes.

    The same for the same seed.
    """
    rng = random.Random(seed)
    names = {end: sorted(name for name in seeds.models if name.endswith(end)) for end in ENDINGS}
    weights = {end: [len(seeds.models[name]) ** -0.5 for name in names[end]] for end in names}
    while True:
        end = rng.choice(ENDINGS)
        (name,) = rng.choices(names[end], weights[end])
        yield name, seeds.damage(name)(rng)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder in memory where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name, np.errstate(all="ignore"):
        yield Path(name)
