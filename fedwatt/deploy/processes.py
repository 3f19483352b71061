"""Flower's processes on the server's machine: the server, and a run submitted to it.

Each runs in a session of its own, so that Ctrl-C reaches only us, and we end them in order.
"""

import logging
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tomli_w

import fedwatt
from fedwatt.deploy.commands import Flower
from fedwatt.deploy.door import folder_in
from fedwatt.deploy.orphans import end_orphans
from fedwatt.deploy.state import RUN_LOCK, SUBMIT_LOCK, going_on
from fedwatt.errors import RunError
from fedwatt.files import holding, is_held, write_text
from fedwatt.runs.config import RunConfig, to_toml

if TYPE_CHECKING:
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.keys import Depot


log = logging.getLogger("fedwatt.deploy")

LOOK_SECONDS: Final = 5.0
"""Between two looks whether the depot's keys have changed."""


@contextmanager
def only_server(flower: Flower) -> Iterator[int]:
    """Be the only server of a depot; how many processes of one that was killed had to be ended.

    Two servers would have two minds about who is accepted, and where a vehicle is.
    """
    folder = flower.depot.folder
    taken = f"A server is running on {folder} already. End it first, or use another --depot."
    with holding(folder, "server", taken):
        yield end_orphans(flower.home)


def serve(
    flower: Flower,
    on_up: "Callable[[Control], None]",
    on_change: "Callable[[Control], None]",
) -> int:
    """Run the server until it ends or we are told to end; its exit status, 0 where we were told.

    `on_change` is called as soon as it answers and whenever the depot's keys have changed, until
    that succeeds; `on_up` once, after the first time.
    """
    # What runs of an earlier server expected.
    shutil.rmtree(folder_in(flower.home), ignore_errors=True)
    process = _start(flower, flower.superlink())
    told = False

    def end(number: int, frame: object) -> None:
        nonlocal told
        told = True
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # Flower takes a second to load, and the server is starting meanwhile.
    from fedwatt.deploy.control import Control
    from fedwatt.deploy.register import wait_until_up

    with Control(flower) as control:
        if wait_until_up(control, lambda: process.poll() is None):
            applied = _keep_applied(flower.depot, partial(on_change, control), -1.0)
            on_up(control)
            while process.poll() is None:
                try:
                    process.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    changed = partial(on_change, control)
                    applied = _keep_applied(flower.depot, changed, applied)
        elif process.poll() is None:
            process.terminate()
            raise RunError(f"The server does not answer at {flower.address}; its log is above.")
    status = process.wait()
    # A service manager takes any other status for a failure.
    return 0 if told and status == -signal.SIGTERM else status


def _keep_applied(depot: "Depot", on_change: Callable[[], None], applied: float) -> float:
    """Apply the depot's keys if they changed after `applied`; when those that hold now were made.

    What fails is said and tried again.
    """
    changed = depot.changed()
    if changed != applied:
        try:
            on_change()
        except RunError as error:
            log.warning("%s It is tried again.", error)
            return -1.0
    return changed


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
    settings = {"config": to_toml(config), "out": str(out.resolve()), "resume": resume}
    return write_server_app(folder, "fedwatt.deploy.server_app:app", settings)


def write_server_app(folder: Path, server_app: str, settings: Mapping[str, object]) -> Path:
    """A Flower app that runs an installed ServerApp with some settings."""
    project = {
        "name": "fedwatt",
        "version": fedwatt.__version__,
        "description": "Federated energy models of electric vehicles",
        "license": "Apache-2.0",
        "dependencies": [],
    }
    components = {
        "serverapp": server_app,
        "clientapp": "fedwatt.deploy.client_app:app",
    }
    app = {"publisher": "fedwatt", "components": components, "config": dict(settings)}
    about = {"project": project, "tool": {"flwr": {"app": app}}}
    write_text(folder / "pyproject.toml", tomli_w.dumps(about))
    return folder


def follow(flower: Flower, app: Path) -> subprocess.Popen[bytes]:
    """Start an app on the running server and show its log until it ends."""
    return _start(flower, flower.run(app))


def _start(flower: Flower, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=flower.environment(), start_new_session=True)


def _finished_at(out: Path) -> float:
    """When a run folder was last completed; 0 if it never was."""
    path = out / "environment.json"
    return path.stat().st_mtime if path.exists() else 0.0
