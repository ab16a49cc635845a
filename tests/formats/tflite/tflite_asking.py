"""Ask the interpreter which element types it runs an operator in, and the import whether it agrees.

Run as a script, this rewrites `kinds.txt`. A cell is asked about in a child process, since kernels that meet a type
they did not expect may end it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("kinds.txt")

AGREES, REFUSED, DIFFERS = "", "!", "?"
"""What stands before a kind in the file: LiteRT runs it and so do we; we refuse it; the results differ."""


def verdict(name: str, kind: str) -> str | None:
    """One of the three for a cell that LiteRT runs, else None."""
    from tflite_kinds import model
    from tflite_running import _compare, check_model, feed, interpreter, read, run_interpreter, session

    from relayout.errors import RelayoutError

    net, rng = model(name, kind), np.random.default_rng(0)
    content = net.bytes()
    try:
        made = interpreter(content)
        details = zip(made.get_input_details(), net.ranges, strict=True)
        inputs = [feed(rng, tuple(d["shape"]), d["dtype"], *r) for d, r in details]
        wanted = run_interpreter(made, inputs)
    except (ValueError, RuntimeError):
        return None
    try:
        imported = session(check_model(read(content)))
    except RelayoutError:
        return REFUSED
    got = imported.run(None, dict(zip([i.name for i in imported.get_inputs()], inputs, strict=True)))
    results = [_compare(a, b, b) for a, b in zip(got, wanted, strict=True)]
    quantized = any(t.quantization is not None for t in net.graph.tensors)
    return AGREES if all(r.error <= r.tolerance(quantized) + net.slack for r in results) else DIFFERS


def _child() -> None:
    for name, kind in json.load(sys.stdin):
        print(json.dumps([name, kind, "began"]), flush=True)
        print(json.dumps([name, kind, verdict(name, kind)]), flush=True)


def ask(cells: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Operator -> the kinds that LiteRT runs, each with its mark."""
    found: dict[str, list[str]] = {}
    rest = list(cells)
    while rest:
        here = Path(__file__)
        folders = [*map(str, (here.parents[3] / "src", here.parents[2], here.parent)), os.environ.get("PYTHONPATH", "")]
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(rest))
            child.stdin.close()
            begun = None
            for line in child.stdout:
                name, kind, mark = json.loads(line)
                begun = (name, kind) if mark == "began" else None
                if mark != "began":
                    rest.pop(0)
                    if mark is not None:
                        found.setdefault(name, []).append(mark + kind)
        if begun is None and rest:
            raise RuntimeError("the child ended before its first cell")
        rest = rest[1:] if begun else rest
    return found


def listed() -> dict[str, list[str]]:
    """The same as the file has it."""
    lines = [line.split() for line in FILE.read_text().splitlines() if line and line[0] != "#"]
    found: dict[str, list[str]] = {}
    for name, *kinds in lines:
        found.setdefault(name, []).extend(kinds)
    return found


def _text(found: dict[str, list[str]]) -> str:
    lines = [
        "# Operator, and the kinds that LiteRT runs it in; `!` before those that the import refuses.",
        "# Written by tflite_asking.py; a slow test asks again.",
    ]
    for name, kinds in sorted(found.items()):
        lines += [f"{name} {' '.join(kinds[i : i + 12])}" for i in range(0, len(kinds), 12)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        _child()
    else:
        from tflite_kinds import cells

        FILE.write_text(_text(ask(list(cells()))))
        print(sum(len(v) for v in listed().values()), "kinds", file=sys.stderr)
