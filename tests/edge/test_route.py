"""Planned trips with positions, and elevation from the command line."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.store import write_map_file
from fedwatt.errors import FedwattError
from fedwatt.telemetry import Trip
from fedwatt.telemetry.store import write_vehicle

from .test_elevation import LATITUDE, LONGITUDE, M_PER_DEGREE, elevation_field, located_vehicle
from .toys import run_folder, trained


def straight(name: str, north_m: np.ndarray, speed_mps: float) -> Trip:
    """A plan to the north with a position for each second."""
    constant = {"speed_mps": speed_mps, "ambient_c": 9.0, "ac_w": 0.0, "heater_w": 0.0}
    channels = {
        "latitude_deg": LATITUDE + north_m / M_PER_DEGREE,
        "longitude_deg": np.full(len(north_m), LONGITUDE),
    }
    return Trip(name, channels | {n: np.full(len(north_m), v) for n, v in constant.items()})


def test_climb_along_a_route_is_the_fields(tmp_path):
    export(
        trained(features="base, elevation"),
        tmp_path / "m.onnx",
        vehicle=located_vehicle(),
        field=elevation_field(),
    )
    model = EnergyModel(tmp_path / "m.onnx")
    plan = straight("up", np.arange(5.0, 401.0, 5.0), 5.0)
    driven = predict_trip(model, plan, "").trip.channels
    # 30 m · sin(300 · 0.0036°) of height, less the first second, and what linear pieces cut off.
    rise_m = 30 * np.sin(300 * 400 / M_PER_DEGREE)
    assert driven["climb_m"].sum() - driven["descent_m"].sum() == pytest.approx(rise_m, abs=1.5)


def test_hills_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "run", features="base, elevation")
    run_folder(tmp_path / "flat")
    write_vehicle(tmp_path / "car", located_vehicle())
    write_map_file(tmp_path / "hills.parquet", elevation_field())
    rows = "".join(f"{9 * i},{LATITUDE + i / 1000},{LONGITUDE},12,5\n" for i in range(12))
    head = "time_s,latitude_deg,longitude_deg,speed_mps,ambient_c\n"
    (tmp_path / "way.csv").write_text(head + rows)
    (tmp_path / "level.csv").write_text("speed_mps,ambient_c\n" + "10,5\n" * 90)

    def says(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    export = (
        "export",
        "run",
        "--out",
        "m.onnx",
        "--vehicle",
        "car",
        "--elevation-map",
        "hills.parquet",
    )
    assert "It reads climb from positions" in says(*export)
    reach = ("--soc", "80", "--capacity", "20", "--html", "way.html")
    assert "climb, descent" in says("predict", "m.onnx", "way.csv", *reach)
    assert "Elevation above the start" in (tmp_path / "way.html").read_text()
    assert "its climb is unknown" in says("predict", "m.onnx", "level.csv")
    for words in (
        (*export[:-1], "none.parquet"),
        ("export", "flat", *export[2:]),
        ("predict", "m.onnx", "none.csv"),
        ("export", "run", "--out", "m.onnx", "--vehicle", "."),
    ):
        assert isinstance(CliRunner().invoke(app, list(words)).exception, FedwattError), words
