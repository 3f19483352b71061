"""Flower's processes on the server's machine: the SuperLink, and a run submitted to it.

Each runs in its own session, so that Ctrl-C reaches only this process, which ends them in order.
"""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

import fedwatt
from fedwatt.deploy import log
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.deploy.server.run_state import RUN_LOCK, SUBMIT_LOCK, going_on
from fedwatt.deploy.transport.request_filter import MARK
from fedwatt.errors import RunError
from fedwatt.files import holding, is_held, write_text

if TYPE_CHECKING:
    from fedwatt.deploy.transport.control import Control

APPS = "fedwatt.deploy.transport.apps"
"""The module of fedwatt's ServerApp and ClientApp."""
CONNECTION = "fedwatt"
"""What the server is called in Flower's configuration."""
LOOK_SECONDS = 5.0
"""Between two checks whether the key store has changed."""
EXPIRY_SECONDS = 600.0
"""Between two checks whether a certificate has expired."""
FREE_SECONDS = 5.0
"""In which the port of a server that was killed becomes free."""


def quiet(level: str = "WARNING") -> dict[str, str]:
    """Return an environment in which Flower sends no telemetry and logs little."""
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_LOG_LEVEL": os.environ.get("FLWR_LOG_LEVEL", level),
    }


@dataclass(frozen=True)
class Flower:
    """Flower's commands for the server at `address`."""

    store: KeyStore
    address: str = "127.0.0.1:9092"

    @property
    def local_address(self) -> str:
        """Return where the server is for its own machine."""
        return f"127.0.0.1:{self.address.rpartition(':')[2]}"

    @property
    def home(self) -> Path:
        """Return Flower's own folder."""
        return self.store.folder.resolve() / "flower"

    def environment(self) -> dict[str, str]:
        """Return the environment of every Flower process on the server's machine."""
        settings = {
            "FLWR_HOME": str(self.home),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        return os.environ | settings | quiet()

    def superlink(self) -> list[str]:
        """Return the server's command.

        Without a database, with which Flower writes every message to disk. All that must outlast a
        restart is in the key store and in the run folder.
        """
        host, _, port = self.address.rpartition(":")
        store = self.store
        return [
            sys.executable, "-m", "fedwatt.deploy.transport.superlink",
            "--host", host.strip("[]"), "--port", port,
            "--disable-runtime-dependency-installation",
            "--ssl-ca-certfile", str(store.owner.resolve()),
            "--ssl-certfile", str(store.certificate.resolve()),
            "--ssl-keyfile", str(store.key.resolve()),
            "--enable-supernode-auth",
        ]  # fmt: skip

    def refuse_taken_port(self) -> None:
        """Raise if something listens there already."""
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + FREE_SECONDS
        while True:
            try:
                socket.create_server((host.strip("[]"), int(port)), reuse_port=False).close()
                return
            except (OSError, ValueError, OverflowError) as error:
                if time.monotonic() > deadline or not isinstance(error, OSError):
                    raise RunError(f"Cannot listen at {self.address}: {error}.") from error
            time.sleep(0.5)

    def connect(self) -> None:
        """Tell Flower's command line where the server is: on this machine."""
        link = {"address": self.local_address, "root-certificates": str(self.store.owner.resolve())}
        table = {"superlink": {"default": CONNECTION, CONNECTION: link}}
        write_text(self.home / "config.toml", tomli_w.dumps(table))


def serve_superlink(flower: Flower, on_up: Callable[[], None]) -> int:
    """Run the server until it ends or is stopped; return its exit status, 0 where it was stopped.

    The keys that it accepts are kept equal to those of the key store.
    """
    process = _start(flower, flower.superlink())
    stopped = False

    def end(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # Flower takes a second to load, and the server is starting meanwhile.
    from fedwatt.deploy.transport.control import Control

    with Control(flower) as control:
        if wait_until_up(control, lambda: process.poll() is None):
            if not filter_answers(flower):
                process.terminate()
                raise RunError(
                    "This version of Flower does not let fedwatt filter requests, and without "
                    "that anybody could start runs on the server. Install flwr 1.41 or 1.42."
                )
            applied = _keep_applied(control, (-1.0, 0))
            on_up()
            while process.poll() is None:
                try:
                    process.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    applied = _keep_applied(control, applied)
        elif process.poll() is None:
            process.terminate()
            raise RunError(f"The server does not answer at {flower.address}; its log is above.")
    status = process.wait()
    # A service manager takes any other status for a failure.
    return 0 if stopped and status == -signal.SIGTERM else status


def filter_answers(flower: Flower) -> bool:
    """Return whether requests to the server pass the request filter."""
    import httpx

    context = ssl.create_default_context(cafile=str(flower.store.owner))
    address = f"https://{flower.local_address}{MARK}"
    return httpx.get(address, verify=context).status_code == httpx.codes.NO_CONTENT


def wait_until_up(control: "Control", lives: Callable[[], bool], seconds: float = 300.0) -> bool:
    """Return whether the server answers before `seconds` are over and while it `lives`."""
    deadline = time.monotonic() + seconds
    while lives() and time.monotonic() < deadline:
        try:
            control.nodes()
            return True
        except RunError:
            time.sleep(0.1)
    return False


def _keep_applied(control: "Control", applied: tuple[float, int]) -> tuple[float, int]:
    """Apply the key store if it changed after `applied`; what fails is logged and tried again.

    It is also applied from time to time, since certificates expire.
    """
    state = control.flower.store.changed(), int(time.time() / EXPIRY_SECONDS)
    if state != applied:
        try:
            apply_store(control)
        except RunError as error:
            log.warning("%s It is tried again.", error)
            return -1.0, 0
    return state


def apply_store(control: "Control") -> int:
    """Make the server accept the vehicles of its key store and no others; return the changes."""
    from fedwatt.deploy.transport.control import UNREGISTERED

    accepted = control.flower.store.accepted()
    nodes = [node for node in control.nodes() if node.status != UNREGISTERED]
    foreign = [node for node in nodes if node.fingerprint not in accepted]
    for node in foreign:
        control.unregister(node.number)
    missing = accepted.keys() - {node.fingerprint for node in nodes}
    for fingerprint in sorted(missing):
        name, key = accepted[fingerprint]
        control.register(key, name)
    return len(foreign) + len(missing)


@contextmanager
def only_submission(out: Path) -> Iterator[None]:
    """Raise RunError if the run folder is another submission's already."""
    with holding(out, SUBMIT_LOCK, going_on(out)):
        # A submission can be killed while its run goes on.
        if is_held(out, RUN_LOCK):
            raise RunError(going_on(out))
        yield


def submit(
    control: "Control", out: Path, *, resume: bool, show: Callable[[list[str]], None]
) -> None:
    """Carry out the key store's plan and follow the log until the run folder is complete.

    KeyboardInterrupt ends the run on the server as well; RunError says that it did not complete.
    """
    before = _finished_at(out)
    earlier = control.runs()
    flower = control.flower
    settings = {"store": str(flower.store.folder.resolve()), "out": str(out.resolve())}
    app = write_app(out / "app", f"{APPS}:server", {**settings, "resume": resume})
    command = ["flwr", "run", str(app), CONNECTION, "--stream"]
    show(command)
    process = _start(flower, command)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.terminate()
        for run in control.runs() - earlier:
            control.stop(run)
        raise
    if not (out / "config.toml").exists():
        raise RunError(
            "The run did not begin; the log above says why. Put it right and submit it again."
        )
    if _finished_at(out) == before:
        raise RunError(
            "The run did not end well; the log above says why. Continue it with: fedwatt deploy "
            f"run --resume --out {out}"
        )


def write_app(folder: Path, server_app: str, settings: Mapping[str, object]) -> Path:
    """Write a Flower app that names installed code and nothing else."""
    project = {
        "name": "fedwatt",
        "version": fedwatt.__version__,
        "description": "Federated energy models of electric vehicles",
        "license": "Apache-2.0",
        "dependencies": [],
    }
    components = {"serverapp": server_app, "clientapp": f"{APPS}:vehicle"}
    app = {"publisher": "fedwatt", "components": components, "config": dict(settings)}
    table = {"project": project, "tool": {"flwr": {"app": app}}}
    write_text(folder / "pyproject.toml", tomli_w.dumps(table))
    return folder


def _start(flower: Flower, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=flower.environment(), start_new_session=True)


def _finished_at(out: Path) -> float:
    """Return when a run folder was last completed; 0 if it never was."""
    path = out / "environment.json"
    return path.stat().st_mtime if path.exists() else 0.0
