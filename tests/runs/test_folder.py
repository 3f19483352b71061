"""One process at a time writes into a run folder."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.errors import RunError

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
    "--set",
    "data.features=base",
    "--set",
    "personalisation.enabled=false",
]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, *WORDS, *words]
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, message = process.communicate(timeout=120)
    return process.returncode, " ".join(message.split())


def test_two_runs_at_once(tmp_path: Path) -> None:
    """They differ in their seeds, and begin together: one of them is refused."""
    both = [start("--rounds", "2", "--seeds", seed, "--out", "run", cwd=tmp_path) for seed in "12"]
    (first, single), (second, other) = map(ended, both)
    assert sorted((first, second)) == [0, 2], (single, other)
    assert (
        "Another process is writing into run." in single + other
        or "already holds" in single + other
    )


def rounds_of(run: Path, process: subprocess.Popen[str], *, more_than: int = 0) -> int:
    """Return how many rounds the log of `run` holds, as soon as they are more than so many."""
    log = run / "progress.jsonl"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        rounds = log.read_text().count('"event": "round"') if log.exists() else 0
        if rounds > more_than:
            return rounds
        time.sleep(0.05)
    raise AssertionError(f"no more than {more_than} rounds, status {process.poll()}")


def test_resume_while_it_runs_and_after_a_kill(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start("--rounds", "100000", "--out", "run", cwd=tmp_path)
    rounds_of(run, first)
    first.send_signal(signal.SIGSTOP)  # the lock is its own as long as it lives
    rounds = rounds_of(run, first)
    refused = CliRunner().invoke(app, ["run", "--resume", "--out", str(run)])
    assert isinstance(refused.exception, RunError)
    assert "run. Wait for its end" in str(refused.exception)
    assert first.poll() is None
    first.send_signal(signal.SIGKILL)
    first.communicate()
    # The lock ended with its process, so the run goes on.
    resume = [sys.executable, "-c", RUN, "run", "--resume", "--out", "run"]
    again = subprocess.Popen(resume, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    rounds_of(run, again, more_than=rounds)
    again.kill()
    again.communicate()
