"""A trial fleet on one machine: all keys, a plan, and vehicles of the built-in synthetic fleet.

    TRIAL/server/                 key store of the server, with the plan
    TRIAL/fleet/NAME/             a vehicle's data
    TRIAL/keys/NAME/              a vehicle's keys and acceptance file

The owner's key signs all of it and is then discarded, so that no server can read it. A real owner
keeps the key offline and signs requests of keys that were made elsewhere.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    OWNER,
    SERVER,
    VEHICLE,
    Owner,
    make_request,
    owner_certificate,
    write_certificate,
)
from fedwatt.deploy.plan.plan import make_plan
from fedwatt.deploy.plan.store import KeyStore
from fedwatt.errors import RunError
from fedwatt.runs.config import RunConfig, from_tables
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import read_vehicle, vehicle_folders, write_fleet

DAYS = 30
VEHICLES = 3


def trial_configuration(rounds: int) -> RunConfig:
    """Return the configuration of a trial: FedAvg with secure aggregation over three vehicles."""
    return from_tables({
        "seeds": [1],
        "training": {"rounds": rounds, "participation": 1.0},
        "deploy": {"vehicles": VEHICLES, "round_seconds": 120.0},
        "secure": {"enabled": True, "smallest_sum": VEHICLES},
        "method": [{"name": "fedavg", "learning_rate": 0.005}],
    })  # fmt: skip


def make_trial(folder: Path, config: RunConfig) -> list[str]:
    """Make a trial fleet in a new folder; return the names of its vehicles."""
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty. Choose another folder for the trial.")
    key = ed25519.Ed25519PrivateKey.generate()  # never written
    owner = Owner(key, owner_certificate(key))
    server = folder / "server"
    make_request("server", server, ["127.0.0.1", "localhost"])
    _sign(owner, server, SERVER)
    store = KeyStore(server)
    write_fleet(folder / "fleet", synthetic_vehicles(VEHICLES, 0), "synthetic, for a trial")
    names = []
    for data in vehicle_folders(folder / "fleet"):
        name = read_vehicle(data).name
        keys = folder / "keys" / name
        make_request(name, keys)
        _sign(owner, keys, VEHICLE)
        store.add_vehicle(keys / CERTIFICATE)
        names.append(name)
    store.install_plan(make_plan(config, owner, days=DAYS))
    return names


def _sign(owner: Owner, keys: Path, role: str) -> None:
    """Sign the request in a folder of keys, and put the owner's certificate beside it."""
    write_certificate(keys / CERTIFICATE, owner.sign_request(keys, role, DAYS))
    write_certificate(keys / OWNER, owner.certificate)
