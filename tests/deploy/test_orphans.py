"""What a killed server left is found by its home, and ended."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedwatt.deploy.orphans import end_orphans, orphans

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")
SLEEPING = "import time; time.sleep(60)"


def left_behind(home: Path, name: str) -> subprocess.Popen:
    """A process of that home whose command line has a name in it."""
    surroundings = os.environ | {"FLWR_HOME": str(home)}
    return subprocess.Popen([sys.executable, "-c", SLEEPING, name], env=surroundings)


def test_processes_of_this_depot_are_ended_and_no_others(tmp_path: Path) -> None:
    home = tmp_path / "flower"
    ours = [left_behind(home, name) for name in ("flower-superexec", "flwr-serverapp")]
    others = [
        left_behind(tmp_path / "flower2", "flower-superexec"),  # of another depot
        left_behind(home, "flwr run"),  # of somebody who submits
    ]
    try:
        deadline = time.monotonic() + 30
        while len(orphans(home)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)  # until they have become what they are
        # Their parent is this test, so they stay in the table until they are waited for.
        codes: list[int] = []
        waiting = [threading.Thread(target=lambda p=p: codes.append(p.wait())) for p in ours]
        for thread in waiting:
            thread.start()
        assert end_orphans(home) == 2
        for thread in waiting:
            thread.join(10)
        assert codes == [-15, -15]
        assert [process.poll() for process in others] == [None, None]
        assert end_orphans(home) == 0
    finally:
        for process in (*ours, *others):
            process.kill()
            process.wait()
