"""Makes vehicles in processes of its own: a core each, while Python runs in one thread at a time.

    python -m fedwatt.windows.workers      reads requests from its input, answers on its output

They are programs of their own rather than children of `multiprocessing`, which would run the
caller's script again in each of them; and they import no more than vehicles need, so they are ready
in half a second. What passes between them are Python objects of one program on one machine.
"""

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from fedwatt.errors import FedwattError, RunError
from fedwatt.windows.client import Client, DataSettings, build_client

if TYPE_CHECKING:
    from fedwatt.windows.lazy import Maker

CHUNK = 24
"""Vehicles that a process is asked for at a time."""


def make(maker: "Maker", settings: DataSettings, places: Sequence[int]) -> list[Client]:
    """Return the vehicles at these places, ready for training."""
    return [build_client(vehicle, settings) for vehicle in maker.vehicles(places)]


class Workers:
    """Processes that make vehicles, begun when there is work for them; they end with this object.

    With one core to use everything is made in this process.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = cores() if count is None else count
        self.processes: list[subprocess.Popen[bytes]] = []

    def make(self, maker: "Maker", settings: DataSettings, places: Sequence[int]) -> list[Client]:
        """Return the vehicles at these places, in their order."""
        chunks = [places[first : first + CHUNK] for first in range(0, len(places), CHUNK)]
        if self.count < 2 or len(chunks) < 2:
            return [client for chunk in chunks for client in make(maker, settings, chunk)]
        if not self.processes:
            self._begin()
        shares = [chunks[n :: self.count] for n in range(self.count)]

        def ask(number: int) -> list[list[Client]]:
            process = self.processes[number]
            return [_answer(process, (maker, settings, chunk)) for chunk in shares[number]]

        with ThreadPoolExecutor(self.count) as threads:
            answers = list(threads.map(ask, range(self.count)))
        rows = [answers[n % self.count][n // self.count] for n in range(len(chunks))]
        return [client for row in rows for client in row]

    def _begin(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for _ in range(self.count):
            process = subprocess.Popen(
                [sys.executable, "-m", "fedwatt.windows.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            weakref.finalize(self, _end, process)
            self.processes.append(process)


def cores() -> int:
    """Cores that this process may use; fewer where OMP_NUM_THREADS says so."""
    here = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        here = len(os.sched_getaffinity(0))
    requested = os.environ.get("OMP_NUM_THREADS", "")
    return min(here, int(requested)) if requested.isdigit() and int(requested) else here


def _answer(process: subprocess.Popen[bytes], request: tuple[Any, ...]) -> list[Client]:
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(request, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (OSError, EOFError) as error:
        raise RunError(
            "A process that makes vehicles has ended early: was it killed, or is memory short? "
            "Completed rounds are kept; continue with --resume."
        ) from error
    if isinstance(answer, Exception):
        raise answer
    clients: list[Client] = answer
    return clients


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent to one that is gone
                pipe.close()
    process.wait()


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    while True:
        try:
            request = pickle.load(questions)
        except EOFError:
            return
        try:
            answer: object = make(*request)
        except FedwattError as error:
            answer = error
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever prints must not be an answer
    serve(sys.stdin.buffer, out)
