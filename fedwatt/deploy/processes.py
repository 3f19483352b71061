"""Flower's processes on the server's machine: the server, and a run submitted to it.

Each runs in a session of its own, so that Ctrl-C reaches only us, and we end them in order.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

import fedwatt
from fedwatt.deploy.commands import Flower
from fedwatt.deploy.door import folder_in
from fedwatt.deploy.state import RUN_LOCK, SUBMIT_LOCK, going_on
from fedwatt.errors import RunError
from fedwatt.files import holding, is_held, write_text
from fedwatt.runs.config import RunConfig, to_toml

if TYPE_CHECKING:
    from fedwatt.deploy.control import Control


def serve(flower: Flower, on_up: "Callable[[Control], None]") -> int:
    """Run the server until it ends or we are told to end; its exit status.

    `on_up` is called as soon as it answers.
    """
    # What runs of an earlier server expected.
    shutil.rmtree(folder_in(flower.home), ignore_errors=True)
    process = _start(flower, flower.superlink())

    def end(number: int, frame: object) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # Flower takes a second to load, and the server is starting meanwhile.
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.register import wait_until_up

    with Control(flower) as control:
        if wait_until_up(control, lambda: process.poll() is None):
            on_up(control)
        elif process.poll() is None:
            process.terminate()
            raise RunError(f"The server does not answer at {flower.address}; its log is above.")
    return process.wait()


@contextmanager
def only_submission(out: Path) -> Iterator[None]:
    """RunError if the run folder is another submission's already."""
    with holding(out, SUBMIT_LOCK, going_on(out)):
        # A submission can be killed while its run goes on.
        if is_held(out, RUN_LOCK):
            raise RunError(going_on(out))
        yield


def submit(
    control: "Control",
    config: RunConfig,
    out: Path,
    *,
    resume: bool,
    show: Callable[[list[str]], None],
) -> None:
    """Train `config` on the server's vehicles and follow the log until the run folder is complete.

    `show` is given Flower's command before it starts. KeyboardInterrupt ends the run on the server
    as well, and RunError says that it did not come to its end.
    """
    before = _finished_at(out)
    earlier = {run.number for run in control.runs()}
    command = control.flower.run(write_app(out / "app", config, out, resume))
    show(command)
    process = _start(control.flower, command)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.terminate()
        for run in control.runs():
            if run.number not in earlier:
                control.stop(run.number)
        raise
    if not (out / "config.toml").exists():
        raise RunError(
            "The run did not begin; the log above says why. Put it right and submit it again."
        )
    if _finished_at(out) == before:
        raise RunError(
            f"The run did not end well; the log above says why. Continue it with: fedwatt deploy "
            f"submit --resume --out {out}"
        )


def write_app(folder: Path, config: RunConfig, out: Path, resume: bool) -> Path:
    """The Flower app of a run: nothing but names of what is installed, and the configuration."""
    project = {
        "name": "fedwatt",
        "version": fedwatt.__version__,
        "description": "Federated energy models of electric vehicles",
        "license": "Apache-2.0",
        "dependencies": [],
    }
    components = {
        "serverapp": "fedwatt.deploy.server_app:app",
        "clientapp": "fedwatt.deploy.client_app:app",
    }
    settings = {"config": to_toml(config), "out": str(out.resolve()), "resume": resume}
    app = {"publisher": "fedwatt", "components": components, "config": settings}
    about = {"project": project, "tool": {"flwr": {"app": app}}}
    write_text(folder / "pyproject.toml", tomli_w.dumps(about))
    return folder


def _start(flower: Flower, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=flower.environment(), start_new_session=True)


def _finished_at(out: Path) -> float:
    """When a run folder was last completed; 0 if it never was."""
    path = out / "environment.json"
    return path.stat().st_mtime if path.exists() else 0.0
