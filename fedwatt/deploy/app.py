"""What Flower is given to run: names of what is installed, and a configuration."""

from pathlib import Path

import tomli_w

import fedwatt
from fedwatt.files import write_text
from fedwatt.runs.config import RunConfig, to_toml


def write_app(folder: Path, config: RunConfig, out: Path, resume: bool) -> Path:
    """The Flower app of a run: nothing but names of what is installed, and the configuration."""
    about = {
        "project": {
            "name": "fedwatt",
            "version": fedwatt.__version__,
            "description": "Federated energy models of electric vehicles",
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedwatt",
                    "components": {
                        "serverapp": "fedwatt.deploy.server_app:app",
                        "clientapp": "fedwatt.deploy.client_app:app",
                    },
                    "config": {
                        "config": to_toml(config),
                        "out": str(out.resolve()),
                        "resume": resume,
                    },
                }
            }
        },
    }
    write_text(folder / "pyproject.toml", tomli_w.dumps(about))
    return folder
