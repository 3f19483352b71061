"""A small stored fleet and the configuration that the tests of the deployment share."""

from pathlib import Path

from safetensors.torch import load_file

from fedwatt.deploy.board import Board
from fedwatt.deploy.execute import execute as deploy
from fedwatt.deploy.policy import OPEN
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.runs import from_toml
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import vehicle_folders, write_fleet
from fedwatt.windows.labelled import SHARED_STRATA
from tests.deploy.loopback import Loopback
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1]
device = "cpu"
[fleet]
data = "{fleet}"
[data]
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = {rounds}
participation = 0.7
batch = 16
[availability]
speeds = [1.0, 0.5]
[deploy]
vehicles = 4
enrolment_seconds = 5
round_seconds = 5
poll_seconds = 0.001
[[method]]
name = "{method}"
"""
QUICK_PROBE = {
    "ri-fedavg": "directions = 2\npoints = 4\nradius = 0.5\n",
    "fo-ri-fedavg": "directions = 2\npoints = 4\nradius = 0.5\n",
}


BOARD = Board(OPEN)
"""Vehicles that answer whatever a server asks for in earnest."""


def make_fleet(path: Path, vehicles: int = 4) -> Path:
    write_fleet(path, synthetic_vehicles(vehicles, 3), "synthetic, for tests")
    return path


def config_text(fleet: Path, method: str = "fedavg", rounds: int = 3, more: str = "") -> str:
    text = CONFIG.format(fleet=fleet, method=method, rounds=rounds)
    return text + QUICK_PROBE.get(method, "") + more


def loopback(fleet: Path, state: Path) -> Loopback:
    """One node a vehicle, numbered from 1 in another order than their names."""
    folders = vehicle_folders(fleet)[::-1]
    return Loopback(
        {n: Vehicle(f, state / f.name, board=BOARD) for n, f in enumerate(folders, start=1)}
    )


def deployed(text: str, grid: Loopback, out: Path, *, resume: bool = False, stop: int = 0) -> Path:
    deploy(from_toml(text), out, grid, Silent(stop), resume=resume)
    return out


def pooled(run: Path, *models: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Windows and RMSE of all vehicles together, by model and stratum that vehicles share."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in read_table(run, "vehicles").to_pylist():
        shared = row["stratum"].partition(":")[0] in ("all", *SHARED_STRATA)
        if shared and row["windows"] and (not models or row["model"] in models):
            own = sums.setdefault((row["model"], row["stratum"]), [0.0, 0.0])
            own[0] += row["windows"]
            own[1] += row["windows"] * row["rmse"] ** 2
    return {key: (count, (squares / count) ** 0.5) for key, (count, squares) in sums.items()}


def weights(run: Path, model: str = "last") -> dict[str, list[float]]:
    found = load_file(run / "model.safetensors")
    return {name: t for name, t in found.items() if f"/{model}/" in name}
