"""Pre-trained models: a number in the first minute, without a fleet, torch or network."""

import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.pretrained import PRETRAINED, route_model, shipped_fleet
from fedwatt.edge.route_forecast import Departure, loaded, plan_route, spread_text
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.route import route_of


def straight(kilometres=5.0, climb_m=None, name="way"):
    """A road to the north that nobody of the shipped fleet has driven."""
    north = np.linspace(0, kilometres / 111.19, 251)
    height = None if climb_m is None else np.linspace(200.0, 200.0 + climb_m, 251)
    return route_of(name, 48.0 + north, np.full(251, 11.0), height)


def energy_wh(route, temperature=15.0, **conditions):
    plan = Departure(temperature_c=temperature, **conditions)
    return plan_route(route_model("leaf-24", plan), route, temperature, plan).forecast.total_wh


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_model_is_plausible_on_a_level_road(name):
    plan = Departure(temperature_c=15.0, soc=0.8, capacity_wh=21_300.0)
    planned = plan_route(route_model(name, plan), straight(), 15.0, plan)
    forecast = planned.forecast
    assert 90 < forecast.total_wh / 5 < 250  # Wh/km
    assert 20 < 3.6 * forecast.metres[-1] / forecast.seconds[-1] < 90  # km/h
    low, high = forecast.energy_levels_wh[-1][[4, 94]]
    assert 0 < low < forecast.total_wh < high
    assert planned.answer().startswith("You arrive with ")


def test_cold_climb_mass_load_and_consumption_each_move_the_energy_as_they_should():
    usual = energy_wh(straight())
    assert energy_wh(straight(), temperature=-10.0) > 1.1 * usual
    # 50 m up with 1,588 kg are 216 Wh at the wheels.
    assert energy_wh(straight(climb_m=50.0)) - usual == pytest.approx(216, rel=0.6)
    assert energy_wh(straight(), mass_kg=2 * 1588.0) == pytest.approx(2 * usual)
    assert usual < energy_wh(straight(), load_kg=300.0) < (1 + 300 / 1588) * usual
    fleet = shipped_fleet()
    per_km = fleet.wh_per_km * 1588 / 1700
    # 70 % of it counts, whatever the temperature; the rest is what the fleet expects in this cold.
    in_usual_weather = energy_wh(straight(), temperature=14.0)
    for temperature in (-10.0, 25.0):
        expected = 0.3 * energy_wh(straight(), temperature=temperature)
        expected += 0.7 * 1.5 * in_usual_weather
        given = energy_wh(straight(), temperature=temperature, consumption=1.5 * per_km)
        assert given == pytest.approx(expected)


def test_a_map_gives_elevations_to_a_route_that_has_none():
    def hill(latitude, longitude):
        return 200.0 + 1000 * (latitude - 48.0)

    inputs = straight(climb_m=1000 * 5 / 111.19)
    assert energy_wh(straight(), elevation=hill) == pytest.approx(energy_wh(inputs), rel=1e-3)
    assert energy_wh(inputs, elevation=lambda lat, lon: 0 * lat) == energy_wh(inputs)


def test_what_ships_names_no_place_and_no_vehicle():
    fleet = shipped_fleet()
    assert fleet.insiders == frozenset() and fleet.elevations is None
    assert not len(fleet.driving.keys)
    assert (fleet.roads.sums.vehicles >= 3).all()


def test_a_load_counts_only_where_mass_does():
    model = route_model("leaf-24", Departure(temperature_c=15.0))
    beta = model.coefficients["energy"].beta
    heavier = loaded(model, model.mass_kg).coefficients["energy"].beta
    assert heavier[0] == 2 * beta[0]  # distance
    assert heavier[4] == beta[4]  # air


def test_ends_of_an_interval_differ():
    assert spread_text(4.61, 4.64, "%") == "4.61 to 4.64 %"


def test_a_pretrained_model_has_a_card_and_no_windows(tmp_path):
    outcome = CliRunner().invoke(app, ["inspect", "leaf-24", "--html", str(tmp_path / "card.html")])
    assert outcome.exit_code == 0 and "Apache-2.0" in outcome.output
    assert "Nissan Leaf" in (tmp_path / "card.html").read_text()
    done = CliRunner().invoke(app, ["predict", "leaf-24", "trip.csv"])
    assert isinstance(done.exception, DataError) and "predicts routes" in str(done.exception)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"mass_kg": 20.0}, "No road vehicle has 20 kg"),
        ({"load_kg": -5.0}, "A load of -5 kg cannot be"),
        ({"consumption": 15.2}, "15.2 kWh/100 km is 152"),
    ],
)
def test_impossible_conditions_are_one_sentence(conditions, message):
    with pytest.raises(SettingError, match=message):
        Departure(**conditions)


BARE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "scipy", "polars", "pyarrow", "pandas", "jinja2"}:
            raise ModuleNotFoundError(f"{name} is not in the edge install")
sys.meta_path.insert(0, Blocked())
from fedwatt.cli import main
sys.argv = ["fedwatt", "route", sys.argv[1], "--model", "leaf-24", "--temperature", "-3", "--soc", "62%"]
main()
"""  # noqa: E501


def test_the_edge_install_is_enough(tmp_path):
    rows = "".join(
        f'<trkpt lat="{48 + i / 2000}" lon="11"><ele>{200 + i}</ele></trkpt>' for i in range(90)
    )
    (tmp_path / "trip.gpx").write_text(f"<gpx><trk><trkseg>{rows}</trkseg></trk></gpx>")
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(tmp_path / "trip.gpx")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "You arrive with" in done.stdout and "climb of" not in done.stdout
