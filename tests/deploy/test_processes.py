"""A submitted run to its end, with commands of our own in Flower's place."""

import os
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedwatt.deploy.processes import serve, submit
from fedwatt.errors import RunError
from fedwatt.runs.config import from_tables

CONFIG = from_tables({"seeds": [1], "method": [{"name": "fedavg"}]})


@dataclass(frozen=True)
class KnownRun:
    number: int


@dataclass(frozen=True)
class StandIn:
    """Flower, whose command is a line of shell, and a server that knows runs by number."""

    line: str
    known: list[int] = field(default_factory=lambda: [1])
    stopped: list[int] = field(default_factory=list)

    @property
    def flower(self):
        return self

    def run(self, app: Path) -> list[str]:
        assert (app / "pyproject.toml").is_file()
        self.known.append(2)
        return ["sh", "-c", self.line]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def runs(self) -> list[KnownRun]:
        return [KnownRun(number) for number in self.known]

    def stop(self, number: int) -> None:
        self.stopped.append(number)


def submitted(control: StandIn, out: Path) -> list[list[str]]:
    commands: list[list[str]] = []
    submit(control, CONFIG, out, resume=False, show=commands.append)
    return commands


def test_a_run_that_completes_its_folder(tmp_path: Path) -> None:
    done = f"touch {tmp_path}/config.toml {tmp_path}/environment.json"
    assert submitted(StandIn(done), tmp_path) == [["sh", "-c", done]]


def test_a_run_that_did_not_begin(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="did not begin"):
        submitted(StandIn("true"), tmp_path)


def test_a_run_that_began_and_did_not_end(tmp_path: Path) -> None:
    # An earlier run in the folder was complete; that is not this one.
    (tmp_path / "environment.json").touch()
    with pytest.raises(RunError, match=r"did not end well.*--resume"):
        submitted(StandIn(f"touch {tmp_path}/config.toml"), tmp_path)


def test_ctrl_c_ends_the_new_run_and_no_other(tmp_path: Path, monkeypatch) -> None:
    started = []

    def interrupted(process: subprocess.Popen, timeout: float | None = None) -> int:
        started.append(process)
        raise KeyboardInterrupt

    wait = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    control = StandIn("exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        submitted(control, tmp_path)
    assert control.stopped == [2]
    assert wait(started[0], timeout=10) == -15  # ended by our SIGTERM, long before its minute


@dataclass(frozen=True)
class StandInServer:
    """A depot's server, which is a line of shell."""

    line: str
    home: Path
    address: str = "127.0.0.1:9092"

    @property
    def depot(self):
        return self

    def changed(self) -> float:
        return 0.0

    def superlink(self) -> list[str]:
        return ["sh", "-c", self.line]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)


@pytest.mark.parametrize(
    ("line", "told", "status"), [("exec sleep 60", True, 0), ("exit 3", False, 3)]
)
def test_a_server_that_was_told_to_end_has_not_failed(
    line: str, told: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwatt.deploy.control.Control", lambda flower: nullcontext())
    monkeypatch.setattr("fedwatt.deploy.register.wait_until_up", lambda control, lives: True)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def on_up(control: object) -> None:
        if told:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        assert serve(StandInServer(line, tmp_path), on_up, lambda control: None) == status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
