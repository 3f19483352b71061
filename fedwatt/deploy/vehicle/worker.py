"""Computations in a child process, within hard limits of memory, CPU time and wall-clock time.

The child is started with `spawn`, computes one job after the other, and is bound by RLIMIT_AS
(what it has when it starts, plus `memory_mb`) and, for each job, RLIMIT_CPU. A child that misses
its wall-clock deadline is killed, and the next job gets a new one.
"""

import math
import multiprocessing as mp
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from fedwatt.deploy import log
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError, FedwattError

READY = "ready"
"""A child's first message, before its first job."""
START_SECONDS = 120.0


class Computing(Protocol):
    """Computes replies, in this process or another."""

    def compute(self, job: Any) -> Content:
        """Return the result of a job."""


class Worker:
    """Computes in a child process."""

    def __init__(
        self,
        folder: Path,
        state: Path,
        acceptance: Acceptance,
        *,
        threads: int = 1,
        nice: int = 10,
        target: "Callable[..., None] | None" = None,
    ) -> None:
        self.acceptance = acceptance
        self._arguments = (folder, state, acceptance, threads, nice)
        self._target = target or serve_jobs
        self._process: Any = None
        self._pipe: Connection | None = None

    def compute(self, job: Any) -> Content:
        """Return the result of a job; DataError if it fails or exceeds a limit."""
        try:
            pipe = self._started()
            pipe.send(job)
            if not pipe.poll(self.acceptance.wall_seconds):
                self.stop()
                raise DataError(
                    f"a computation took longer than wall_seconds = "
                    f"{self.acceptance.wall_seconds:g} and was ended"
                )
            outcome, values, arrays = pipe.recv()
        except (EOFError, OSError) as error:
            status = self._ended()
            raise DataError(
                f"the computing process ended ({status}): it exceeded cpu_seconds = "
                f"{self.acceptance.cpu_seconds} or memory_mb = {self.acceptance.memory_mb}"
            ) from error
        if outcome:
            raise DataError(outcome)
        return Content(values, arrays)

    def stop(self) -> None:
        """End the child process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is None or self._process is None or not self._process.is_alive():
            self.stop()
            context = mp.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(
                target=self._target, args=(other, *self._arguments), daemon=True
            )
            self._process.start()
            other.close()
            if not self._pipe.poll(START_SECONDS) or self._pipe.recv() != READY:
                self.stop()
                raise DataError("the computing process did not start")
        return self._pipe

    def _ended(self) -> str:
        process = self._process
        if process is not None:
            process.join(5.0)
        status = "killed" if process is None else f"exit status {process.exitcode}"
        self.stop()
        return status


def serve_jobs(
    pipe: Connection, folder: Path, state: Path, acceptance: Acceptance, threads: int, nice: int
) -> None:
    """Compute jobs from `pipe` until it closes; the child's main function."""
    import torch

    from fedwatt.deploy import show_log
    from fedwatt.deploy.vehicle.compute import Computer

    show_log()
    torch.set_num_threads(threads)
    with suppress(OSError):
        os.nice(max(0, nice - os.nice(0)))
    computer = Computer(folder, state)
    limit_memory(acceptance.memory_mb)
    answer_jobs(pipe, computer, acceptance)


def answer_jobs(pipe: Connection, computer: Computing, acceptance: Acceptance) -> None:
    """Answer each job with an error text, values and arrays."""
    pipe.send(READY)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        limit_cpu(acceptance.cpu_seconds)
        try:
            result = computer.compute(job)
            pipe.send(("", dict(result.values), dict(result.arrays)))
        except MemoryError:
            pipe.send((f"a computation needs more than memory_mb = {acceptance.memory_mb}", {}, {}))
        except FedwattError as error:
            pipe.send((str(error), {}, {}))
        except Exception as error:
            log.exception("a computation failed")
            pipe.send((f"a computation failed ({type(error).__name__})", {}, {}))


def limit_memory(megabytes: int) -> None:
    """Bound this process's address space to what it has now and so much more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def limit_cpu(seconds: int) -> None:
    """Bound this process's CPU time to what it has used and so many seconds more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    bound = math.ceil(used.ru_utime + used.ru_stime) + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (bound, hard))
