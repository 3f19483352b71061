"""Processes that a killed server left behind: they hold its port and write into its run folders.

They are known by the home that Flower was given (FLWR_HOME, the depot's own folder), which no other
server has. Linux only: elsewhere there is no /proc, and nothing is found.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

NAMES: Final = (b"fedwatt.deploy.transport.superlink", b"flower-superexec", b"flwr-serverapp")
"""What a server consists of besides the command that started it."""
SECONDS: Final = 5.0
"""To end in order, before they are killed."""


def orphans(home: Path, proc: Path = Path("/proc")) -> list[int]:
    """Processes of an earlier server with this home."""
    mark = b"FLWR_HOME=" + os.fsencode(home)
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            surroundings = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile, or another user's
        if mark in surroundings and any(name in command for name in NAMES):
            found.append(int(folder.name))
    return sorted(found)


def end_orphans(home: Path) -> int:
    """End what an earlier server with this home has left; how many processes that were."""
    found = left = orphans(home)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + SECONDS
        while (left := orphans(home)) and time.monotonic() < deadline:
            time.sleep(0.1)
    return len(found)
