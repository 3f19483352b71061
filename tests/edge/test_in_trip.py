"""Aligned, mixed and learning from the trip: a model file and a stream that do all three."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyMeter, EnergyPredictor
from fedwatt.edge.trips import outcome, predict_trip
from fedwatt.journeys.filter import TripPrior, in_trip
from fedwatt.journeys.mixture import chosen_mixture
from fedwatt.journeys.ridge import fleet_ridge
from fedwatt.windows import build_client
from fedwatt.windows.client import prepared, split_of_trips

from .toys import trained

LAG_S = 1.5


@pytest.fixture(scope="module")
def late(vehicle):
    """The vehicle with power that is recorded later than its motion."""
    trips = tuple(
        replace(
            trip, channels={**trip.channels, "energy_wh": np.roll(trip.channels["energy_wh"], 1)}
        )
        for trip in vehicle.trips
    )
    return replace(vehicle, trips=trips)


@pytest.fixture(scope="module")
def mixed(late, tmp_path_factory) -> EnergyModel:
    run = trained(align=True, features="physics")
    shared = fleet_ridge([build_client(prepared(late, run.config.data), run.config.data)])
    file = tmp_path_factory.mktemp("mixed") / "model.onnx"
    export(replace(run, fleet_ridge=shared), file, vehicle=late)
    return EnergyModel(file)


def test_the_card_says_lag_weight_and_prior(mixed):
    card = mixed.card
    # The synthetic energy of a second goes with the middle of its way, half a second before.
    assert card.lag_s == pytest.approx(LAG_S, abs=0.25)
    # The network is as it starts, so the ridges carry the mixture.
    assert 0 <= card.network_weight < 0.5
    assert TripPrior(**card.trip_prior).noise_wh > 0


def test_the_graph_gives_what_the_mixture_predicts(mixed, late, tmp_path):
    run = trained(align=True, features="physics")
    client = build_client(prepared(late, run.config.data), run.config.data)
    export(run, tmp_path / "network.onnx")
    network = EnergyModel(tmp_path / "network.onnx")
    evaluated, tested = (
        network.energies(client.series, client.ends[split]) for split in ("validation", "test")
    )
    mixture = chosen_mixture(client, fleet_ridge([client]), evaluated)
    assert mixed.card.network_weight == pytest.approx(mixture.network)
    expected_wh = client.energy_wh(mixture.predict(client, "test", tested))
    splits = split_of_trips(late, run.config.data)
    trips = [trip for trip in late.trips if splits.get(trip.name) == "test"]
    result = [predict_trip(mixed, trip, late.name).windows_wh[::10] for trip in trips]
    # Means of float32 features, in another order.
    assert np.concatenate(result) == pytest.approx(expected_wh, abs=1e-3)


def test_a_stream_that_knows_its_energy_is_the_batch_with_the_filter(mixed, late):
    trip = late.trips[2]
    batch = outcome(mixed, trip, late.name)
    predictor = EnergyPredictor(mixed)
    energy_wh = trip.channels["energy_wh"]
    made = []
    # A stream's second is what ends with a sample, so the first sample brings no energy.
    made += predictor.step(sample_of(trip, 0), time_s=0.0)
    for second in range(trip.seconds):
        made += predictor.step(sample_of(trip, second), energy_wh=float(energy_wh[second]))
    assert [prediction.second for prediction in made] == list(range(60, 60 + len(made)))
    streamed_wh = np.array([prediction.energy_wh for prediction in made])
    # Speed that stands and then changes is a little different between samples and seconds.
    assert streamed_wh == pytest.approx(batch.windows_wh[: len(made)], abs=0.5)
    prior = TripPrior(**mixed.card.trip_prior)
    measured_wh, speed_mps = (
        column[: len(made)] for column in (batch.measured_wh, batch.speed_mps)
    )
    expected = in_trip(prior, streamed_wh, measured_wh, 60, cold=batch.cold, speed_mps=speed_mps)
    for prediction, corrected, deviation in zip(made, *expected, strict=True):
        energy, low, high = prediction.in_trip
        # A stream's mean speed is that of its samples, which the noise of fast driving depends on.
        assert energy == pytest.approx(corrected, abs=1e-2)
        assert (high - low) / 2 == pytest.approx(prior.factor * deviation, rel=1e-4)
    predictor.finish()
    assert predictor.rest_of_trip(500.0, 300.0).wh == 0.0  # the next trip has shown nothing


def sample_of(trip, second):
    return {
        name: float(values[second])
        for name, values in trip.channels.items()
        if name in ("speed_mps", "ambient_c", "ac_w", "heater_w")
    }


def test_missing_energy_and_chargers_teach_nothing(mixed, late):
    trip = late.trips[2]
    unknown = EnergyPredictor(mixed)
    charging = EnergyPredictor(mixed)
    for second in range(300):
        unknown.step(sample_of(trip, second), energy_wh=math.nan)
        still = {**sample_of(trip, second), "speed_mps": 0.0}
        made = charging.step(still, energy_wh=-2.0)
        assert all(
            prediction.in_trip[0] == prediction.energy_wh
            for prediction in made
            if prediction.in_trip
        )
    for predictor in (unknown, charging):
        assert predictor.rest_of_trip(500.0, 300.0).wh == 0.0


def test_a_snapshot_keeps_what_the_trip_has_shown(mixed, late):
    trip = late.trips[2]
    energy_predictor = EnergyPredictor(mixed)
    other = EnergyPredictor(mixed)
    for second in range(200):
        energy_predictor.step(
            sample_of(trip, second), energy_wh=float(trip.channels["energy_wh"][second])
        )
    other.restore(energy_predictor.snapshot())
    assert energy_predictor.rest_of_trip(500.0, 300.0) == other.rest_of_trip(500.0, 300.0)
    assert energy_predictor.rest_of_trip(500.0, 300.0).wh != 0.0
    for second in range(200, 220):
        energy_wh = float(trip.channels["energy_wh"][second])
        made = energy_predictor.step(sample_of(trip, second), energy_wh=energy_wh)
        assert made == other.step(sample_of(trip, second), energy_wh=energy_wh)


def test_a_meter_forgets_and_finds_gaps():
    meter = EnergyMeter(60.0)
    for second in range(1000):
        meter.add(float(second), 1.0)
    assert len(meter.parts) <= 121 and meter.between(950.0, 980.5) == pytest.approx(30.5)
    meter.add(1020.0, 5.0)
    assert math.isnan(meter.between(990.0, 1010.0)) and math.isnan(meter.between(0.0, 999.0))
    meter.add(1010.0, 99.0)  # late: it counts for nothing
    assert EnergyMeter.from_json(meter.to_json()) == meter
