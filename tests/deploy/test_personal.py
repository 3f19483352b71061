"""A vehicle's own model after a run on a real fleet: on its disk, then in a model file."""

from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import Message, RecordDict
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy.memory import KEPT_RUNS
from fedwatt.deploy.messages import from_records, to_records
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.trips import outcome
from fedwatt.errors import RunError
from fedwatt.federation.records import error_columns
from fedwatt.metrics import ErrorSums
from fedwatt.runs import execute, from_toml
from fedwatt.runs.model_file import own_model_file
from fedwatt.runs.tables import read_table
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows.client import split_of_trips
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet
from tests.deploy.hilly import hilly, hilly_fleet
from tests.runs.test_execute import Silent

PERSONAL = "[personal]\nenabled = true\nrates = [0.003, 0.03]\nsteps = [50, 300]\n"


def personal(text: str) -> str:
    """With personal models, and judged on every window, as a model file is."""
    text = text.replace("stride = 20", "stride = 20\nevaluation_stride = 1")
    return text.replace("[deploy]", PERSONAL + "[deploy]")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("personal") / "fleet")


def kept(vehicle: Vehicle) -> list[Path]:
    return list(vehicle.state.glob("memory/*/*/personal.safetensors"))


def type_export(*arguments: object) -> None:
    words = ["export", *map(str, arguments)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0


def stated(run: Path, vehicle: str) -> dict[str, Any]:
    """What the run recorded of a vehicle's own model."""
    rows = read_table(run, "vehicles").to_pylist()
    about = vehicle, "personal", "all"
    (row,) = [row for row in rows if (row["vehicle"], row["model"], row["stratum"]) == about]
    return row


def overheard(vehicle: Vehicle) -> list[dict[str, ErrorSums]]:
    """What a vehicle adds under masks of its own model; a run records the sum of all."""
    told: list[dict[str, ErrorSums]] = []
    own = vehicle._personalise
    vehicle._personalise = lambda task: told.append(own(task)) or told[-1]  # type: ignore
    return told


def assert_errors_as_stated(
    file: Path, run: Path, folder: Path, told: list[dict[str, ErrorSums]] | None = None
) -> None:
    """The model file has the recorded errors on the vehicle's test windows."""
    model, vehicle = EnergyModel(file), read_vehicle(folder)
    assert model.card.personal
    split = split_of_trips(vehicle, from_toml((run / "config.toml").read_text()).data)
    seen = [outcome(model, t, vehicle.name) for t in vehicle.trips if split.get(t.name) == "test"]
    predicted = np.concatenate([found.windows_wh for found in seen])
    sums = ErrorSums.of(predicted, np.concatenate([found.measured_wh for found in seen]))
    row = stated(run, vehicle.name) if told is None else error_columns(told[-1]["all"])
    assert (sums.windows, sums.near_zero_share) == (row["windows"], row["near_zero"])
    for name in ("rmse", "mae", "mape", "wmape"):  # float32 sums in another order
        assert getattr(sums, name) == pytest.approx(row[name], rel=1e-4), name


def test_each_vehicle_keeps_the_simulations_personal_model(fleet: Path, tmp_path: Path) -> None:
    text, grid = personal(config_text(fleet, rounds=2)), loopback(fleet, tmp_path / "state")
    real = deployed(text, grid, tmp_path / "real")
    execute(from_toml(text), tmp_path / "simulated", Silent())
    shared = load_file(real / "model.safetensors")
    for vehicle in grid.vehicles.values():
        (file,) = kept(vehicle)
        wanted = load_file(own_model_file(tmp_path / "simulated", "fedavg", 1, vehicle.name))
        got = load_file(file)
        assert got.keys() == wanted.keys()
        assert any((got[name] != shared[f"fedavg/best/seed-1/{name}"]).any() for name in got)
        for name in wanted:
            torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-5, msg=name)
        out, state = tmp_path / f"{vehicle.name}.onnx", ("--state", vehicle.state)
        own = ("--vehicle", vehicle.folder, "--model", "personal", "--out", out)
        type_export(real, *own, *state)
        assert_errors_as_stated(out, real, vehicle.folder)
    assert not (real / "personal").exists()

    one, other, *_ = grid.vehicles.values()
    with pytest.raises(RunError, match=r"is on its own disk\. Give its --state folder"):
        type_export(real, *own)
    with pytest.raises(RunError, match="no run of a real fleet"):
        type_export(tmp_path / "simulated", *own, *state)
    with pytest.raises(RunError, match=f"'{other.name}', not of '{one.name}'"):
        type_export(real, *own, "--vehicle", one.folder, "--state", other.state)
    with pytest.raises(RunError, match="has no personal model for fedavg of the run"):
        type_export(real, *own, "--state", tmp_path / "empty")


@pytest.mark.parametrize("method", ["ditto", "fedrep"])
def test_a_methods_own_models_stay_on_board(method: str, fleet: Path, tmp_path: Path) -> None:
    text, grid = config_text(fleet, method, rounds=2), loopback(fleet, tmp_path / "state")
    real = deployed(text, grid, tmp_path / "real")
    execute(from_toml(text), tmp_path / "simulated", Silent())
    for vehicle in grid.vehicles.values():
        (file,) = kept(vehicle)
        wanted = load_file(own_model_file(tmp_path / "simulated", method, 1, vehicle.name))
        for name, part in load_file(file).items():
            torch.testing.assert_close(part, wanted[name], rtol=0, atol=1e-6, msg=name)
    assert not (real / "personal").exists()
    # All that went up: Δ_k, of which a personal head is no part, and error sums.
    sent = [(kind, from_records(records).arrays) for _, kind, records in grid.sent]
    assert {name for kind, arrays in sent if kind == "train" for name in arrays} == {"delta"}
    if method == "fedrep":
        assert all(not arrays["delta"][-5:].any() for kind, arrays in sent if kind == "train")


def test_own_model_and_own_hills_go_into_one_file(tmp_path: Path) -> None:
    fleet = hilly_fleet(tmp_path / "fleet")
    grid = loopback(fleet, tmp_path / "state")
    vehicle, out = grid.vehicles[1], tmp_path / "own.onnx"
    told = overheard(vehicle)
    real = deployed(personal(hilly(fleet)), grid, tmp_path / "real")
    own = ("--vehicle", vehicle.folder, "--model", "personal", "--out", out)
    # All that the vehicle needs of the run folder.
    copied = tmp_path / "copied"
    (copied / "level").mkdir(parents=True)
    for name in ("model.safetensors", "deployment.json"):
        copy(real / name, copied)
        copy(real / "level" / name, copied / "level")
    type_export(copied, *own, "--state", vehicle.state)
    nodes = EnergyModel(out).card.terrain["nodes"]
    assert nodes > 0
    assert_errors_as_stated(out, real, vehicle.folder, told)
    type_export(copied, *own, "--state", vehicle.state, "--model", "best")
    assert EnergyModel(out).card.terrain["nodes"] == nodes
    assert not EnergyModel(out).card.personal
    (hills,) = vehicle.state.glob("memory/*/hills-*.parquet")
    hills.unlink()
    with pytest.raises(RunError, match="has no hills of the run"):
        type_export(real, *own, "--state", vehicle.state)


@pytest.mark.parametrize("late", [False, True])
def test_who_has_no_positions_has_its_level_model_in_the_file(late: bool, tmp_path: Path) -> None:
    """Also where it joins when that model has been trained."""
    lost = "car-002"
    fleet = hilly_fleet(tmp_path / "fleet", lost=lost)
    text = personal(hilly(fleet, rounds=3).replace("area =", "minimum_vehicles = 2\narea ="))
    text = text.replace("\nvehicles = 4", "\nvehicles = 3")
    grid = loopback(fleet, tmp_path / "state")
    (node,) = [n for n, vehicle in grid.vehicles.items() if vehicle.name == lost]
    grid.before_push = lambda grid: grid.offline.__init__(
        {node} if late and grid.training <= 3 else ()
    )
    vehicle = grid.vehicles[node]
    told = overheard(vehicle)
    real = deployed(text, grid, tmp_path / "real")
    out = tmp_path / "own.onnx"
    own = ("--vehicle", vehicle.folder, "--model", "personal", "--out", out)
    type_export(real, *own, "--state", vehicle.state)
    assert_errors_as_stated(out, real, vehicle.folder, told)


def question_of(run: str, asked: RecordDict) -> RecordDict:
    content = from_records(asked)
    return to_records(replace(content, values=content.values | {"run": run}))


def test_a_vehicle_keeps_its_own_models_of_a_few_runs(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    questions: list[RecordDict] = []
    answer = grid.answer

    def listening(message: Message) -> Message | None:
        questions.append(message.content)
        return answer(message)

    grid.answer = listening
    deployed(personal(config_text(fleet, rounds=1)), grid, tmp_path / "run")
    vehicle, asked = grid.vehicles[1], questions[-1]
    for number in range(KEPT_RUNS + 2):
        vehicle.answer("personalise", question_of(f"run-{number}", asked))
    names = sorted(file.parent.parent.name[:5] for file in kept(vehicle))
    assert names == ["run-2", "run-3", "run-4"]


def test_a_model_that_cannot_be_kept_is_not_reported(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    vehicle = grid.vehicles[1]
    vehicle.state.mkdir(parents=True)
    (vehicle.state / "memory").write_text("in the way")
    real = deployed(personal(config_text(fleet, rounds=1)), grid, tmp_path / "run")
    rows = read_table(real, "vehicles").to_pylist()
    told = {row["vehicle"] for row in rows if row["model"] == "personal"}
    assert told == {one.name for one in grid.vehicles.values()} - {vehicle.name}
