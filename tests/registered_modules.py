"""Which module registers an operator: what lets a process load those alone that its model needs."""

from __future__ import annotations

import subprocess
import sys

REGISTERED = """
import json, sys
from relayout.formats.tflite.{side} import registry

class Watched(dict):
    def __setitem__(self, key, entry):
        super().__setitem__(key, entry)
        frame = sys._getframe()
        while not (frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith(registry.FAMILIES)):
            frame = frame.f_back
        name = key if isinstance(key, str) else ":".join(filter(None, key))
        modules[name] = frame.f_globals["__name__"].rpartition(".")[2]

modules = {{}}
registry._ENTRIES = Watched()
registry.entries()
print(json.dumps(dict(sorted(modules.items())), indent=0))
"""


def modules(side: str) -> str:
    """Return the content of a `modules.json`: a line for each operator.

    Modules register once, so another process is asked.

    Args:
        side: `importing` or `exporting`.
    """
    code = REGISTERED.format(side=side)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
