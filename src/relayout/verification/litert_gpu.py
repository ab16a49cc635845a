"""LiteRT's GPU accelerator as a judge of `.tflite` files: does it take a file as a whole, and are its numbers right?

The accelerator is the one of LiteRT's `CompiledModel`, over WebGPU. It wants a GPU with a Vulkan driver, or
SwiftShader, which computes on the CPU. It runs in a process of its own: over some files it ends the process, over
others it takes minutes.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from relayout.errors import MissingRuntimeError, RelayoutError
from relayout.isolation.process import DiedError, Process

LIMIT_SECONDS = 120.0  # the time that a file may take, compiled and run once
SWIFTSHADER = ("/usr/lib/chromium*/vk_swiftshader_icd.json", "/opt/google/chrome/vk_swiftshader_icd.json")
"""Places of SwiftShader's description for Vulkan's loader."""
DRIVERS = "VK_ICD_FILENAMES"  # the environment variable by which Vulkan's loader is told which drivers to load
INSTALL = (
    "LiteRT's GPU accelerator wants a GPU with a Vulkan driver, or SwiftShader: install Debian's packages chromium and"
    " libvulkan1, and the Python package ai-edge-litert (2.1 or newer)"
)
TOLERANCE = 5e-3
"""The largest difference, relative to the largest number of an output, between the accelerator and the CPU kernels."""
_REASON = re.compile(r"^\s*([A-Z][A-Z0-9_]+: [^\n]+)", re.MULTILINE)
_PREFIXES = ("INFO", "WARNING", "ERROR", "VERBOSE", "FATAL")


class GpuVerdict(NamedTuple):
    """The accelerator's answer about one file."""

    is_whole: bool  # whether it takes every operator
    reasons: tuple[str, ...] = ()  # its reasons for operators that it does not take, in its words
    # output -> its largest difference from the CPU kernels, relative to the largest number; None where a number is
    # lost. Empty where it was not run.
    differences: Mapping[str, float | None] = {}
    seconds: float = 0.0  # the time of one run
    problem: str = ""  # why there is no answer: the process died, or took too long; "" where there is one

    @property
    def difference(self) -> float | None:
        """The largest difference of all outputs; None where one is lost or it was not run."""
        values = list(self.differences.values())
        return max((each for each in values if each is not None), default=None) if None not in values else None

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON types."""
        return {"ok": self.is_right, **self._asdict(), "reasons": list(self.reasons)}

    def lines(self) -> Iterator[str]:
        """Yield what a report says."""
        if self.is_right:
            yield f"PASSED on LiteRT's GPU: it takes the whole file, and differs from the CPU by {self.difference:.1e}"
        elif not self.is_whole:
            yield "FAILED on LiteRT's GPU: it does not take the file as a whole"
            yield from (f"  {reason}" for reason in self.reasons)
            if not self.reasons:
                yield f"  {self.problem}"
        elif self.difference is not None:
            yield f"FAILED on LiteRT's GPU: it takes the whole file, and differs from the CPU by {self.difference:.1e}"
        else:
            yield f"FAILED on LiteRT's GPU: it takes the whole file; {self.problem or 'numbers are lost'}"

    @property
    def is_right(self) -> bool:
        """True if it takes the file as a whole, and its numbers are those of the CPU kernels."""
        return self.is_whole and self.difference is not None and self.difference <= TOLERANCE


class Judge:
    """The accelerator in a child process, which is started anew where a file ends it."""

    def __init__(
        self,
        limit: float = LIMIT_SECONDS,  # seconds that a file may take
    ) -> None:
        self.limit = limit
        self._process = Process.serving(Path(__file__).with_name("gpu_server.py"), _environment())

    def __enter__(self) -> "Judge":
        require_accelerator()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._process.close()

    def ask(self, file: Path | str, *, feeds: str = "", results: str = "", half: bool = False) -> GpuVerdict:
        """Return the accelerator's answer about a file."""
        try:
            return _verdict(self._process.answer(str(file), feeds, results, half, seconds=self.limit))
        except DiedError as death:
            problem = f"no answer in {self.limit:g} s" if death.late else "it ends its process"
            return GpuVerdict(is_whole=False, problem=problem)


def judged(file: Path | str) -> GpuVerdict:
    """Return the accelerator's answer about a file.

    Raises:
        MissingRuntimeError: neither a GPU nor SwiftShader is there.
    """
    with Judge() as judge:
        return judge.ask(file)


def require_accelerator(file: Path | None = None) -> None:
    """See that the accelerator can run here, and takes such a file.

    Raises:
        MissingRuntimeError: it cannot; the message says what to install.
        RelayoutError: the file is no `.tflite`.
    """
    if file is not None and file.suffix.lower() != ".tflite":
        raise RelayoutError(f"--gpu: {file} is no .tflite, which alone LiteRT's GPU accelerator runs")
    if not is_available():
        raise MissingRuntimeError(INSTALL)


@cache
def is_available() -> bool:
    """Return whether the accelerator, a loader of Vulkan and a driver for it are installed."""
    if find_spec("ai_edge_litert") is None or find_spec("ai_edge_litert.compiled_model") is None:
        return False
    if find_library("vulkan") is None:
        return False
    return bool(os.environ.get(DRIVERS)) or bool(_swiftshader()) or any(Path("/dev/dri").glob("renderD*"))


@cache
def _swiftshader() -> str:
    """Return the place of SwiftShader's description; "" where it is not installed."""
    places = (place for pattern in SWIFTSHADER for place in sorted(Path("/").glob(pattern.lstrip("/"))))
    return next((str(place) for place in places), "")


def _environment() -> dict[str, str]:
    """Return the variables by which the accelerator finds its driver."""
    drivers, folder = os.environ.get(DRIVERS) or _swiftshader(), os.environ.get("XDG_RUNTIME_DIR")
    return {"XDG_RUNTIME_DIR": folder or tempfile.gettempdir(), **({DRIVERS: drivers} if drivers else {})}


def _verdict(facts: Mapping[str, object]) -> GpuVerdict:
    reasons = [" ".join(each.split()) for each in _REASON.findall(str(facts["log"]))]
    reasons = [each for each in dict.fromkeys(reasons) if not each.startswith(_PREFIXES)]
    differences, seconds = facts.get("differences"), facts.get("seconds")
    return GpuVerdict(
        bool(facts.get("whole")),
        tuple(reasons),
        differences if isinstance(differences, dict) else {},
        seconds if isinstance(seconds, float) else 0.0,
        str(facts.get("error", "")),
    )
