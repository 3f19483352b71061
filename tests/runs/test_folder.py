"""One process at a time writes into a run folder."""

import signal
import subprocess
import sys
import time
from pathlib import Path

RUN = "from fedwatt.cli import main; main()"
WORDS = [
    "run",
    "--vehicles",
    "3",
    "--method",
    "fedavg",
    "--no-baselines",
    "--set",
    "fleet.trips=3",
]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, *WORDS, *words]
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, message = process.communicate(timeout=120)
    return process.returncode, " ".join(message.split())


def test_two_runs_at_once(tmp_path: Path) -> None:
    """They differ in their seeds, and begin together: one of them is refused."""
    both = [start("--rounds", "20", "--seeds", seed, "--out", "run", cwd=tmp_path) for seed in "12"]
    (first, single), (second, other) = map(ended, both)
    assert sorted((first, second)) == [0, 2], (single, other)
    assert (
        "Another process is writing into run." in single + other
        or "already holds" in single + other
    )


def test_resume_while_it_runs_and_after_a_kill(tmp_path: Path) -> None:
    first = start("--rounds", "100000", "--out", "run", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/checkpoint/*/round-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    resume = [sys.executable, "-c", RUN, "run", "--resume", "--out", "run"]
    again = subprocess.run(resume, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2
    assert "Another process is writing into run. Wait for its end" in again.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGKILL)
    first.communicate()
    after = subprocess.Popen(resume, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    time.sleep(5)
    assert after.poll() is None  # the lock ended with its process, so the run goes on
    after.kill()
    after.communicate()
