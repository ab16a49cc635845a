"""Ask rknn-toolkit2 which single operators it puts on the NPU of an RK3588, and print a line of JSON for each model.

    rknn/bin/python bench/by_rknn.py MODEL.onnx ...

The environment is one of its own: `pip install rknn-toolkit2`. A line is {"model", "refused"} or {"model", "rows"},
where a row is an operator's type, its element type, and NPU or CPU. The toolkit ends its process over some models:
whoever reads goes on behind the last line.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from typing import Any

ROW = re.compile(r"^D RKNN: \[[\d:.]+\] \d+\s+(\S+)\s+(\S+)\s+(NPU|CPU|GPU)\s", re.MULTILINE)
"""A line of the table that the compiler prints when it is verbose."""
ENDS = ("InputOperator", "OutputOperator")


def build(path: str) -> int:
    from rknn.api import RKNN

    compiler = RKNN(verbose=True)
    compiler.config(target_platform="rk3588")
    failed: int = compiler.load_onnx(model=path) or compiler.build(do_quantization=False)
    compiler.release()
    return failed


def compiled(path: str) -> dict[str, Any]:
    """Build a model, what the toolkit prints caught at the file descriptors."""
    with tempfile.TemporaryFile() as log:
        kept = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        try:
            failed: object = build(path)
        except Exception as error:  # whatever the toolkit raises
            failed = f"{type(error).__name__}: {error}"
        finally:
            sys.stdout.flush()
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
                os.close(old)
        log.seek(0)
        text = log.read().decode(errors="replace")
    if failed:
        return {"model": path, "refused": str(failed).strip().splitlines()[-1]}
    return {"model": path, "rows": [list(row) for row in ROW.findall(text) if row[0] not in ENDS]}


if __name__ == "__main__":
    for model in sys.argv[1:]:
        print(json.dumps(compiled(model)), flush=True)
