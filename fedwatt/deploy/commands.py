"""The Flower commands behind `fedwatt deploy`, and the surroundings they need."""

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedwatt.deploy.keys import Depot
from fedwatt.errors import RunError
from fedwatt.files import write_text

CONNECTION = "fedwatt"  # what the server is called in Flower's configuration


def quiet(level: str = "WARNING") -> dict[str, str]:
    """Surroundings in which Flower sends no telemetry, looks for no updates and logs little.

    The user's own FLWR_LOG_LEVEL is kept.
    """
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_LOG_LEVEL": os.environ.get("FLWR_LOG_LEVEL", level),
    }


@dataclass(frozen=True)
class Flower:
    """Flower's commands on the server's machine, for the server at `address`."""

    depot: Depot
    address: str = "127.0.0.1:9092"
    insecure: bool = False

    @property
    def local_address(self) -> str:
        """Where the server is for its own machine."""
        return f"127.0.0.1:{self.address.rpartition(':')[2]}"

    @property
    def home(self) -> Path:
        """Flower's own folder."""
        return self.depot.folder.resolve() / "flower"

    def environment(self) -> dict[str, str]:
        """Of every Flower process on the server's machine: quick to take up work, and quiet."""
        own = {
            "FLWR_HOME": str(self.home),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        return os.environ | own | quiet()

    def authority(self) -> Path:
        """The depot's own certificate, which there must be."""
        if not self.depot.ca.exists():
            raise RunError(
                f"{self.depot.folder} has no keys. 'fedwatt deploy keys create' makes them."
            )
        return self.depot.ca

    def superlink(self) -> list[str]:
        """The server's command.

        Without a database: with one, Flower writes every message and every look for one to disk and
        a round takes several times as long. All that must outlast a restart is in the depot (who
        may take part) and in the run folder (how far the run is).
        """
        host, _, port = self.address.rpartition(":")
        folder = self.depot.folder.resolve()
        certificate, key = (folder / path.name for path in self.depot.server)
        security = ["--insecure"] if self.insecure else [
            "--ssl-ca-certfile", str(folder / "ca.pem"),
            "--ssl-certfile", str(certificate),
            "--ssl-keyfile", str(key),
            "--enable-supernode-auth",
        ]  # fmt: skip
        return [
            sys.executable, "-m", "fedwatt.deploy.superlink",
            "--host", host.strip("[]"), "--port", port,
            "--disable-runtime-dependency-installation",
            *security,
        ]  # fmt: skip

    def refuse_taken_port(self) -> None:
        """Raise if something listens there already: it would be taken for this server."""
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_server((host.strip("[]"), int(port)), reuse_port=False):
                pass
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunError(f"Cannot listen at {self.address}: {reason}.") from error

    def connect(self) -> None:
        """Tell Flower's command line where the server is: on this machine."""
        door: dict[str, Any] = {"address": self.local_address}
        if self.insecure:
            door["insecure"] = True
        else:
            door["root-certificates"] = str(self.authority().resolve())
        table = {"superlink": {"default": CONNECTION, CONNECTION: door}}
        write_text(self.home / "config.toml", tomli_w.dumps(table))

    def register(self, public: Path, name: str) -> list[str]:
        """Make the server accept a vehicle's key."""
        return ["flwr", "supernode", "register", str(public), CONNECTION, "--name", name]

    def unregister(self, node: int) -> list[str]:
        """Make the server refuse a vehicle's key."""
        return ["flwr", "supernode", "unregister", str(node), CONNECTION]

    def nodes(self) -> list[str]:
        """List the vehicles that the server knows."""
        return ["flwr", "supernode", "list", CONNECTION, "--verbose"]

    def runs(self) -> list[str]:
        """List the runs of the server."""
        return ["flwr", "list", CONNECTION]

    def run(self, app: Path) -> list[str]:
        """Start a run and follow its log."""
        return ["flwr", "run", str(app), CONNECTION, "--stream"]
