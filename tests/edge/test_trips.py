"""Trips, range, files and the page."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.export import export
from fedwatt.edge.reading import read_trip
from fedwatt.edge.trip_page import headline, render
from fedwatt.edge.trips import Forecast, TripPrediction, estimate_range, forecast, predict_trip
from fedwatt.errors import DataError, FedwattError, SettingError
from fedwatt.telemetry import Trip
from fedwatt.telemetry.store import write_vehicle
from fedwatt.windows.client import split_of_trips

from .toys import a_vehicle, rendered, run_folder, trained

PLAN = "speed_mps,ambient_c\n" + "10,5\n" * 90


def planned(total_wh: float, km: float = 10.0, spread_wh: float = 100.0) -> TripPrediction:
    seconds = 100
    trip = Trip("plan", {"speed_mps": np.full(seconds, 1000 * km / seconds)})
    each = np.full(seconds, total_wh / seconds)
    since = np.cumsum(each)
    return TripPrediction(trip, each[:41], each, None, since - spread_wh, since + spread_wh, 0.9)


def test_range_by_hand():
    # 1,000 Wh of 10 kWh at 50 %: 40 % on arrival; 100 Wh/km, so 50 km in all and 40 left.
    reach = estimate_range(planned(1000.0), 0.5, 10_000)
    assert reach.arrival == pytest.approx(0.4) and reach.reaches
    assert (reach.arrival_low, reach.arrival_high) == pytest.approx((0.39, 0.41))
    assert (reach.range_km, reach.remaining_km) == pytest.approx((50, 40))


def test_a_charge_that_does_not_reach_and_one_that_cannot_rise():
    short = estimate_range(planned(1000.0), 0.05, 10_000)
    assert not short.reaches and short.range_km == pytest.approx(5) and short.remaining_km == 0
    downhill = estimate_range(planned(-500.0), 0.99, 10_000)
    assert downhill.arrival == 1.0 and downhill.range_km == np.inf


@pytest.mark.parametrize(
    ("charge", "capacity_wh", "sentence"),
    [
        (1.4, 1e4, "A state of charge of 140% does not exist"),
        (-0.1, 1e4, "-10%"),
        (0.5, 0, "0 kWh"),
    ],
)
def test_charges_and_capacities_that_cannot_be(charge, capacity_wh, sentence):
    with pytest.raises(SettingError, match=sentence):
        estimate_range(planned(1000.0), charge, capacity_wh)


def test_a_trip_without_temperature_is_refused_in_one_sentence(model):
    trip = Trip("7", {"speed_mps": np.ones(90), "ac_w": np.zeros(90), "heater_w": np.zeros(90)})
    with pytest.raises(DataError, match="Trip '7' has no ambient_c, which the model needs"):
        predict_trip(model, trip, "car")


def test_a_trip_shorter_than_a_window_is_refused(model):
    with pytest.raises(DataError, match="lasts 30 s; the model needs at least 60 s"):
        predict_trip(model, Trip("7", {"speed_mps": np.ones(30)}), "car")


def test_a_recorded_trip_and_its_vehicle(vehicle, tmp_path):
    write_vehicle(tmp_path / "car", vehicle)
    name = vehicle.trips[3].name
    trip, owner = read_trip(tmp_path / "car" / name)
    assert owner.name == vehicle.name and trip.seconds == vehicle.trips[3].seconds
    with pytest.raises(DataError, match="Unknown trip 'nope'"):
        read_trip(tmp_path / "car" / "nope")
    with pytest.raises(DataError, match=r"is a vehicle\. Name one of its trips"):
        read_trip(tmp_path / "car")


def test_a_csv_at_any_times_is_resampled_like_an_import(tmp_path):
    file = tmp_path / "trip.csv"
    rows = "".join(f"{t},{4 + t},11\n" for t in (0.0, 0.5, 2.0, 4.0))
    file.write_text("time_s,speed_mps,ambient_c\n" + rows)
    trip, owner = read_trip(file)
    assert owner is None and trip.channels["speed_mps"].tolist() == [5.0, 6.0, 7.0, 8.0]
    assert np.isnan(trip.channels["heater_w"]).all()  # unknown, which is not off


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("ambient_c\n3\n", "no column speed_mps"),
        ("speed_kmh\n3\n", "Unknown column 'speed_kmh'"),
        ("speed_mps\n3\nfast\n", "line 3 does not hold 1 numbers"),
        ("time_s,speed_mps\n100,3\n0,3\n", "is set back"),
        ("speed_mps\n3\n120\n", "line 3: speed_mps is 120 m/s, and can only be 0 to 70"),
        ("speed_mps,soc\n3,0.8\n3,79\n", "line 3: soc is 79 1, and can only be 0 to 1.001"),
    ],
)
def test_what_is_wrong_with_a_csv(text, sentence, tmp_path):
    (tmp_path / "trip.csv").write_text(text)
    with pytest.raises(DataError, match=sentence):
        read_trip(tmp_path / "trip.csv")


def test_the_page_is_self_contained_and_says_the_numbers(model, vehicle):
    prediction = predict_trip(model, vehicle.trips[0], vehicle.name)
    page = rendered(prediction, model.card, vehicle="<car>", charge=np.linspace(0.9, 0.8, 5))
    assert "<car>" not in page and "&lt;car&gt;" in page
    assert "src=" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert page.count("<figure") == 5 and f"{prediction.total_wh:,.0f}" in page
    assert "Energy along the route" in page
    assert "var(--predicted)" in page and "prefers-color-scheme: dark" in page


def test_a_trip_that_the_model_was_made_with_is_no_test(model, vehicle):
    role = {"train": "training", "validation": "validation", "test": ""}
    splits = split_of_trips(vehicle, trained().config.data)
    assert set(splits.values()) == set(role)
    for trip in vehicle.trips:
        expected = role[splits[trip.name]]
        assert model.card.role_of(trip.name, vehicle.name) == expected
        assert model.card.role_of(trip.name, "another car") == ""
        prediction = predict_trip(model, trip, vehicle.name)
        page = rendered(prediction, model.card, vehicle=vehicle.name)
        assert (f"a {expected} trip, so no test" in page) == bool(expected)


def forecast_of(result, reach=None):
    card = SimpleNamespace(vehicle="car")
    return Forecast(result.trip, "", card, result, reach, None)


def test_the_headline_has_both_signs():
    plan = planned(1000.0)
    assert headline(forecast_of(plan)).startswith("The trip takes 1,000\u00a0Wh")
    for measured, ending in ((800.0, "25% more"), (1250.0, "20% less"), (1001.0, "as measured")):
        driven = replace(plan, measured_wh=np.full(100, measured / 100))
        assert headline(forecast_of(driven)).rpartition(", ")[2].startswith(ending)


def test_the_headline_of_a_plan_says_what_is_left():
    plan = planned(1000.0)
    enough, short = (estimate_range(plan, soc, 10_000) for soc in (0.5, 0.05))
    assert headline(forecast_of(plan, enough)).startswith("You arrive with 40\u00a0%")
    assert headline(forecast_of(plan, short)) == "The battery is empty after 5.0\u00a0km"
    assert (enough.short_wh, short.short_wh) == (0.0, pytest.approx(500))


def test_export_and_predict_from_the_command_line(vehicle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "run")
    write_vehicle(tmp_path / "car", vehicle)
    (tmp_path / "plan.csv").write_text(PLAN)
    call = CliRunner().invoke

    def says(*words: str) -> str:
        done = call(app, list(words))
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    assert "takes scaled features" in says("export", "run", "--out", "plain.onnx")
    export = ("export", "run", "--out", "m.onnx", "--vehicle", "car")
    assert "takes the telemetry of" in says(*export)
    splits = split_of_trips(vehicle, trained().config.data)
    new, seen = (next(t for t, s in splits.items() if s == split) for split in ("test", "train"))
    trip = f"car/{new}"
    table = says("predict", "m.onnx", trip, "--html", "p.html")
    assert "measured energy" in table and "little about new trips" not in table
    assert f"{seen} is a training trip of {vehicle.name}" in says(
        "predict", "m.onnx", f"car/{seen}"
    )
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    reach = ("predict", "m.onnx", "plan.csv", "--soc", "80", "--capacity", "20")
    assert "SoC on arrival" in says(*reach, "--html", "q.html")
    for words in ((*reach[:4], "140", *reach[5:]), ("predict", "plain.onnx", trip), reach[:5]):
        assert isinstance(call(app, list(words)).exception, FedwattError)


def test_a_vehicle_that_reports_its_charge_alone_has_intervals_and_a_measured_trip(tmp_path):
    trips = []
    for trip in a_vehicle().trips:
        channels = {n: v for n, v in trip.channels.items() if n not in ("energy_wh", "power_w")}
        soc = 0.9 - np.cumsum(trip.channels["energy_wh"]) / 40_000
        trips.append(Trip(trip.name, channels | {"soc": soc}))
    facts = {"pack_capacity_wh": 40_000.0}
    vehicle = replace(a_vehicle(), trips=tuple(trips), facts=facts)
    card = export(trained(target="energy-from-soc"), tmp_path / "m.onnx", vehicle=vehicle)
    assert card.calibration and not card.trip_prior
    write_vehicle(tmp_path / "car", vehicle)
    predicted = forecast(tmp_path / "m.onnx", tmp_path / "car" / trips[0].name)
    assert predicted.prediction.interval_wh is not None
    energy_wh = a_vehicle().trips[0].channels["energy_wh"]
    assert predicted.prediction.measured_total_wh == pytest.approx(energy_wh[1:].sum(), rel=1e-6)
    assert "Measured energy is what the state of charge lost" in render(predicted)
