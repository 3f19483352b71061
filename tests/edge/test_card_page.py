"""A model's card: coarse, complete, and without names."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedwatt.edge.card import UNKNOWN, render, sections
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.export_run import about_fleet, about_run
from tests.report.conftest import VEHICLES, run_folder  # noqa: F401 (a fixture)

from .toys import trained

ABOUT = {
    "trained_on": {
        "vehicles": 12,
        "held_out": 2,
        "kinds": ["passenger"],
        "coverage": {
            "hours": 41.0,
            "kilometres": 1900.0,
            "climb_m_per_km": 14.0,
            "ambient_c": [-5, 25],
        },
        "labels": {"measured": 12, "simulated": 0},
    },
    "errors": {
        "unit": "Wh",
        "rmse": 44.21,
        "interval": [40.0, 48.4],
        "vehicles": 10,
        "regimes": {"temperature: under 5 °C": {"windows": 40, "rmse": 61.0}},
    },
    "privacy": {"epsilon": 3.1416, "delta": 1e-5, "epsilon_server": None},
    "licence": "CC-BY-4.0",
}


def text_of(card) -> str:
    return "\n".join(f"{title}: {row}" for title, rows in sections(card) for row in rows)


@pytest.fixture(scope="module")
def file(vehicle, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("card") / "model.onnx"
    export(replace(trained(), about=ABOUT), out, vehicle=vehicle)
    return out


def test_the_file_carries_it_and_it_says_everything(file: Path, vehicle) -> None:
    card = EnergyModel(file).card
    message = text_of(card)
    for words in (
        "10, and 2 that only evaluated (passenger)",
        "1,900 km in 41 h",
        "-5 to 25 °C in nine of ten hours",
        "measured in 12 vehicles",
        "about 14 m of climb per km",
        "44.2 Wh (95 % interval 40.0 to 48.4), mean of 10 vehicles",
        "It extrapolates below -5 °C and above 25 °C.",
        "It was evaluated on only 40 windows under 5 °C.",
        "ε = 3.14, δ = 1e-05 for each vehicle",
        "'against the server', 'no bound'",
        "CC-BY-4.0",
    ):
        assert words in message, words
    names = [vehicle.name, *(trip.name for trip in vehicle.trips)]
    assert not [
        name for name in names if name in message or name in render(sections(card), "model.onnx")
    ]
    assert "44.2 Wh" in render(sections(card), "model.onnx")


def test_what_is_not_known_is_called_that(model: EnergyModel) -> None:
    card = model.card
    assert card.about == {}
    assert text_of(card).count(UNKNOWN) == 3
    assert "none stated" in text_of(card)


def test_simulated_labels_are_a_limit(model: EnergyModel) -> None:
    fleet = {"trained_on": {"vehicles": 1, "labels": {"measured": 0, "simulated": 1}}}
    card = replace(model.card, about=fleet, calibration={})
    assert "Its labels are simulated" in text_of(card)
    assert "It has no prediction intervals." in text_of(card)


def test_a_fleet_without_its_names_and_source() -> None:
    described = {"source": "csv: depot-west.csv", "vehicles": 3, "held_out": ["car-7"]}
    assert about_fleet(described) == {"vehicles": 3, "held_out": 1}


def test_errors_of_a_run_with_their_interval(run_folder: Path) -> None:  # noqa: F811
    subject = about_run(run_folder, "fedavg", "last", "MIT")
    errors = subject["errors"]
    assert errors["vehicles"] == len(VEHICLES)
    low, high = errors["interval"]
    assert 0 < low < errors["rmse"] < high
    assert subject["licence"] == "MIT"
    assert not [name for name in VEHICLES if name in json.dumps(subject)]


def test_a_vehicle_with_the_model_alone_says_less(tmp_path: Path) -> None:
    assert about_run(tmp_path, "fedavg", "final", "") == {"licence": ""}


def test_the_command_prints_it_where_no_torch_is(file: Path) -> None:
    program = """
import sys
for name in ("torch", "polars", "pyarrow", "scipy", "matplotlib", "safetensors", "tomli_w", "onnx"):
    sys.modules[name] = None
sys.argv = ["fedwatt", "inspect", sys.argv[1]]
from fedwatt.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1,900 km in 41 h" in done.stdout


def test_what_needs_an_extra_says_which(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["torch"] = None
sys.argv = ["fedwatt", "run", "--out", "x"]
from fedwatt.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "This needs torch, which is not installed: pip install 'fedwatt[train]'." in done.stderr


def test_the_card_names_the_trips_that_calibrate_its_intervals(model: EnergyModel) -> None:
    changed = replace(
        model.card, calibration={"level": 0.9, "trips": 16, "source": "validation trips"}
    )
    assert "90%, from 16 validation trips" in text_of(changed)
    fleet = changed.calibration | {"trips": 12, "source": "trips of 4 other vehicles"}
    assert "90%, from 12 trips of 4 other vehicles" in text_of(replace(changed, calibration=fleet))
