"""A run in a process of its own, killed in its midst."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path


def kill_after(lines: int, program: str, *arguments: str) -> None:
    """Start a Python program and kill it once it has printed so many lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
