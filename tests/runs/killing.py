"""A run in a process of its own, killed in its midst or not."""

import multiprocessing
import os
import signal
import sys
import textwrap
from multiprocessing.connection import Connection
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
"""Each process begins as a copy of one that has loaded torch, which would take it seconds."""
FORKS.set_forkserver_preload(["fedwatt.runs"])


def kill_after(lines: int, program: str, *arguments: str) -> None:
    """Start a Python program and kill it once it has printed so many lines."""
    assert _ended(program, arguments, lines) == -signal.SIGKILL


def finish(program: str, *arguments: str) -> None:
    """Let a Python program run to its end."""
    assert _ended(program, arguments) == 0


def _ended(program: str, arguments: tuple[str, ...], lines: int | None = None) -> int | None:
    messages, tell = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_run, args=(program, arguments, tell))
    process.start()
    tell.close()
    with messages, os.fdopen(messages.fileno(), closefd=False) as printed:
        if lines is None:
            printed.read()
        else:
            for _ in range(lines):
                assert printed.readline()
            process.kill()
    process.join()
    status = process.exitcode
    process.close()
    return status


def _run(program: str, arguments: tuple[str, ...], tell: Connection) -> None:
    os.dup2(tell.fileno(), sys.stdout.fileno())
    os.chdir(Path(__file__).parents[2])
    sys.argv = ["-c", *arguments]
    exec(textwrap.dedent(program), {"__name__": "__main__"})
