"""Ctrl-C and limits of time while HiGHS works on a program that it needs minutes for."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from problems import dense_problem

import relayout
from relayout.solve import problem as limits
from relayout.solve.solver import solve

HERE = Path(__file__).parent

INTERRUPTED = """
import os, signal, threading, time
from problems import dense_problem
from relayout.solve import program
from relayout.solve.solver import solve

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background is not given
program.PATIENCE = 60  # a loaded machine may not let HiGHS stop at once

solving = []

def interrupt():
    while not (found := [thread for thread in threading.enumerate() if thread.name == "HiGHS"]):
        time.sleep(0.01)
    solving.append(found[0].native_id)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

problem = dense_problem(1500, 6)
threading.Thread(target=interrupt, daemon=True).start()
try:
    solve(problem)
except KeyboardInterrupt:
    time.sleep(0.1)
    print("works on" if os.path.exists(f"/proc/self/task/{solving[0]}") else "interrupted")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_is_heard_while_highs_works() -> None:
    path = os.pathsep.join([str(Path(relayout.__file__).parents[1]), str(HERE)])
    child = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (child.returncode, child.stdout) == (0, "interrupted\n"), child.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_the_solver_can_be_used_again_after_ctrl_c() -> None:
    def heard(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, heard)
    gc.disable()  # what others hang into its collections cannot raise, and says so
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.5, 5)  # again, should the first come where nothing can be raised
        with pytest.raises(KeyboardInterrupt):
            solve(dense_problem(1500, 6))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert solve(dense_problem(12, 3)).proved


def test_a_limit_of_time_holds_inside_one_program() -> None:
    solution = solve(dense_problem(1500, 6), time_limit=0.5)
    assert not solution.finished
    assert not solution.proved
    assert solution.bound < solution.cost


def test_work_is_limited_where_no_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert solve(dense_problem(12, 3)).proved
    monkeypatch.setattr(limits, "MOST_STEPS", 100)
    monkeypatch.setattr(limits, "STEPS_OF_LABEL", 0)
    solution = solve(dense_problem(1500, 6))
    assert not solution.finished
    assert solution == solve(dense_problem(1500, 6))
