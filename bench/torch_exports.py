"""Write networks of PyTorch as ONNX by both of its exporters, each within a time limit."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

LIMIT_SECONDS = 150
"""Of one export."""
EXPORTERS = ("script", "dynamo")

Network = Callable[[], tuple[Any, Any]]
"""Makes a network, and what it is fed."""


class LateError(Exception):
    """An export takes too long."""


def write_all(out: str, networks: Mapping[str, Network]) -> None:
    """Write each network by each exporter, and print what became of it.

    Args:
        out: the directory of the files `NAME.EXPORTER.onnx`.
        networks: name -> what makes it.
    """
    warnings.filterwarnings("ignore")
    Path(out).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, _late)
    for name, make in networks.items():
        for exporter in EXPORTERS:
            path = Path(out) / f"{name}.{exporter}.onnx"
            signal.alarm(LIMIT_SECONDS)
            try:
                export(*make(), path, dynamo=exporter == "dynamo")
                print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
            except Exception as error:  # of any kind: it is another's exporter
                lines = str(error).strip().splitlines() or ["too late"]
                print(f"{path.name}: {type(error).__name__}: {lines[0][:120]}", flush=True)
            finally:
                signal.alarm(0)


def export(module: Any, x: Any, path: Path, *, dynamo: bool) -> None:
    """Write one network; its first tensor is the result."""
    import torch

    class First(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            output = self.inner(x)
            if isinstance(output, torch.Tensor):
                return output
            tensors = output.to_tuple() if hasattr(output, "to_tuple") else output
            return next(each for each in tensors if isinstance(each, torch.Tensor))

    own: dict[str, Any] = {"external_data": False} if dynamo else {}
    with torch.no_grad():
        torch.onnx.export(
            First(module), (x,), path, dynamo=dynamo, input_names=["x"], opset_version=18 if dynamo else 17, **own
        )


def _late(number: int, frame: FrameType | None) -> None:
    raise LateError
