"""Google's ai-edge-quantizer in a child process, which LiteRT may end."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

from relayout.errors import RelayoutError
from relayout.isolation import DiedError, Process, frames
from relayout.progress import say

STAGE = "calibrating"
"""The stage of a conversion in which samples are run."""
Range = tuple[float, float]


class QuantizationError(RelayoutError):
    """The quantizer refuses a model, or LiteRT does not run what it makes."""


def quantized_file(
    source: Path,
    result: Path,
    recipe: Sequence[Mapping[str, Any]],
    key: str,
    samples: Iterable[Mapping[str, Any]] | None,
    ranges: Mapping[str, Range],
) -> tuple[dict[str, Range], int]:
    """Quantize a file.

    Args:
        source: a float `.tflite`.
        result: where the quantized one goes.
        recipe: what becomes of each operator.
        key: of the signature that samples are fed to.
        samples: inputs by name; None where the recipe needs none.
        ranges: tensor -> the range that it has whatever the samples say.

    Returns:
        The range of each value, and how many samples there were.

    Raises:
        QuantizationError: it cannot be quantized, or LiteRT does not run it.
    """
    script = Path(__file__).with_name("quantizer_server.py")
    path = os.pathsep.join(filter(None, sys.path))
    environment = {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3", "TQDM_DISABLE": "1"}
    child = Process([], str(script), [frames.__file__], environment)
    count = 0
    try:
        _ask(
            child, "the quantizer reads the float file", "begin", str(source), list(recipe), key, samples is not None, 1
        )
        total = len(samples) if isinstance(samples, Sized) else 0
        for sample in () if samples is None else samples:
            say(STAGE, count, max(total, count + 1))
            _ask(child, f"sample {count} runs", "sample", dict(sample))
            count += 1
        say(STAGE, count, max(total, count))
        found: dict[str, Range] = _ask(child, "the file is quantized", "finish", str(result), dict(ranges))
        return found, count
    finally:
        child.close()


def _ask(child: Process, what: str, *question: Any) -> Any:
    """Return the answer of the child process.

    Raises:
        QuantizationError: it raises an error, or ends.
    """
    try:
        (content,) = child.ask([pickle.dumps(question)])
    except DiedError as death:
        raise QuantizationError(f"LiteRT ends its process while {what} ({death.how})") from None
    said, found = pickle.loads(content)
    if said:
        raise QuantizationError(f"while {what}: {said}")
    return found
