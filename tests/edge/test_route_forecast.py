from datetime import datetime

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.export import export
from fedwatt.edge.pretrained import route_model
from fedwatt.edge.route_forecast import Departure, plan_routes
from fedwatt.edge.route_page import render_routes
from fedwatt.edge.trip_page import MapLine, map_drawn, route_map
from fedwatt.edge.trips import estimate_range, predict_trip
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.route_exchange import learn_routes
from tests.journeys.towns import DEGREE_M, routes_by_vehicle

from .toys import trained

MORNING = datetime(2026, 11, 16, 8)


@pytest.fixture(scope="module")
def file(vehicle, tmp_path_factory):
    everybody = routes_by_vehicle(4)
    fleet = learn_routes(everybody, ElevationSettings())
    personal_model = fleet.personalised(everybody["car-0"], "car-0", capacity_wh=16_000.0)
    out = tmp_path_factory.mktemp("routes") / "model.onnx"
    export(trained(), out, vehicle=vehicle, routes=personal_model)
    return out


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ways")
    for name, metres in (("short", 2000), ("long", 4000)):
        at = np.arange(0, metres + 1, 50.0) / DEGREE_M
        rows = "\n".join(f"{42 + lat:.7f},-83.0" for lat in at)
        (folder / f"{name}.csv").write_text(f"latitude_deg,longitude_deg\n{rows}\n")
    return [folder / "short.csv", folder / "long.csv"]


def planned(file, ways, **conditions):
    plan = Departure(**conditions)
    return plan_routes(route_model(str(file), plan), ways, plan)


def test_alternatives_stand_side_by_side_with_bars_and_times(file, ways):
    plan = planned(file, ways, depart=MORNING, temperature_c=20.0, soc=0.5)
    short, long = (dict(route.rows()) for route in plan.routes)
    assert short["distance"] == "2.0 km"
    assert long["distance"] == "4.0 km"
    assert short["arrival"].startswith(f"08:0{short['duration'][0]} ")
    assert short["chance to arrive"] == "over 99 %"
    energies = [route.forecast.total_wh for route in plan.routes]
    assert energies[0] < energies[1]
    names = [name for name, _ in plan.routes[0].rows()]
    assert names.count("90 % interval") == 3
    assert names.count("50 % interval") == 3


def test_the_page_shows_every_route_and_where_the_charge_ends(file, ways):
    plan = planned(file, ways, temperature_c=20.0, soc=0.03)
    page = render_routes(plan)
    for word in ("short", "long", "Expected speed", "Energy since the start", "State of charge"):
        assert word in page
    assert "the battery would be empty after" in page
    assert "Elevation above the start" not in page  # no hills are known to this model
    assert any("be empty" in remark for remark in plan.remarks())


def test_the_command_prints_a_table(file, ways):
    options = ["--temperature", "-3", "--soc", "62%"]
    outcome = CliRunner().invoke(app, ["route", str(ways[0]), "--model", str(file), *options])
    assert outcome.exit_code == 0, outcome.output
    assert "SoC on arrival" in outcome.output
    assert "You arrive with" in outcome.output
    assert "kWh" in outcome.output


def test_predict_takes_the_capacity_that_the_file_knows(file, tmp_path):
    (tmp_path / "plan.csv").write_text("speed_mps,ambient_c\n" + "10,5\n" * 90)

    def printed(*options: str) -> str:
        words = ["predict", str(file), str(tmp_path / "plan.csv"), "--soc", *options]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.output

    # The file was made with 16 kWh.
    assert "SoC on arrival" in printed("60%")
    assert printed("60%") == printed("60") == printed("60%", "--capacity", "16")
    assert printed("60%") != printed("60%", "--capacity", "8")


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({}, "Give the outside temperature"),
        ({"temperature_c": 20.0, "consumption": 150.0}, "leave --vehicle, --mass and --consum"),
        ({"temperature_c": 20.0, "mass_kg": 1600.0}, "leave --vehicle, --mass and --consum"),
        ({"temperature_c": 300.0}, "300 °C cannot be"),
    ],
)
def test_what_is_missing_or_cannot_be_is_one_sentence(file, ways, plan, sentence):
    with pytest.raises(SettingError, match=sentence):
        planned(file, ways, **plan)


def test_a_charge_over_100_percent_is_refused_at_once():
    with pytest.raises(SettingError, match="state of charge of 120% does not exist"):
        Departure(soc=1.2)


def test_a_consumption_in_kilowatt_hours_per_100_km_is_refused_at_once():
    with pytest.raises(
        SettingError, match=r"15.2 Wh/km is no vehicle's. .* 15.2 kWh/100 km is 152"
    ):
        Departure(consumption=15.2)


def test_a_file_without_routes_says_how_to_get_them(model, ways):
    with pytest.raises(DataError, match="Export it with --routes"):
        planned(model.path, ways, temperature_c=20.0)


def test_a_capacity_in_wh_gives_no_range(model, vehicle):
    plan = predict_trip(model, vehicle.trips[0], vehicle.name)
    with pytest.raises(SettingError, match=r"16000 kWh cannot be.*write 16"):
        estimate_range(plan, 0.8, 16_000_000.0)


def test_the_map_is_coloured_by_energy_per_kilometre():
    metres = np.linspace(0.0, 4000.0, 401)
    # 100 Wh/km for two kilometres, then 300.
    energy_wh = np.interp(metres, [0, 2000, 4000], [0, 200, 800])
    line = MapLine("way", 42 + metres / DEGREE_M, np.full(401, -83.0), energy_wh, metres)
    drawn = route_map([line]).axes[0].collections[0]
    per_km = drawn.get_array()
    assert per_km[0] == pytest.approx(100)
    assert per_km[-1] == pytest.approx(300)
    assert 100 < per_km.mean() < 300
    assert map_drawn([MapLine("parked", np.ones(1), np.ones(1), np.ones(1), np.ones(1))]) == []
