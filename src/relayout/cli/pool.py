"""Jobs in processes of their own, one of which may die and cost nobody else anything."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import TypeVar

J = TypeVar("J")
R = TypeVar("R")


def settled(perform: Callable[[J], R], jobs: Sequence[J], workers: int) -> Iterator[tuple[J, R | str]]:
    """Each job as it ends, with its result, or with why its process ended.

    Args:
        perform: a function of a module, which raises nothing.
        jobs: what it is given, one at a time.
        workers: processes at a time.
    """
    with _processes(min(workers, len(jobs))) as pool:
        waiting: dict[Future[R], J] = {pool.submit(perform, job): job for job in jobs}
        for future in as_completed(waiting):
            job = waiting[future]
            # A process that died takes those with it that had not ended: each of them is tried alone.
            yield job, _alone(perform, job) if future.exception() else future.result()


def _alone(perform: Callable[[J], R], job: J) -> R | str:
    with _processes(1) as pool:
        error = (future := pool.submit(perform, job)).exception()
        return future.result() if error is None else f"its process ended: {error}"


def _processes(count: int) -> ProcessPoolExecutor:
    # Spawned, not forked: the runtimes that verification loads have threads.
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
