"""Run many small jobs without importing what they need each time: import once, fork for each.

    python bench/forking.py IMPORTS CALL

IMPORTS and CALL are Python. Each line of standard input is a job, `{"argv": [...], "log": PATH, "limit": SECONDS}`:
CALL runs in a child with that `sys.argv`, its standard output in PATH and its errors in PATH.err. The answer is a line
`{"code": STATUS, "seconds": WALL}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any


def child(call: str, job: dict[str, Any]) -> int:
    for number, path in ((1, job["log"]), (2, f"{job['log']}.err")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    signal.alarm(job["limit"])
    sys.argv = job["argv"]
    try:
        exec(call, {"__name__": "__job__"})
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main(imports: str, call: str) -> None:
    exec(imports, {})
    for line in sys.stdin:
        begun = time.perf_counter()
        pid = os.fork()
        if not pid:
            code = child(f"{imports}\n{call}", json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code, "seconds": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
