"""A vehicle's parts of a card that rest on the fleet: error bars and the trip balance."""

from dataclasses import replace
from typing import Any

from fedwatt.edge.calibration import LEVEL, Calibration
from fedwatt.journeys.filter import TripPrior
from fedwatt.journeys.intervals import Intervals, contribution, in_wh, validation_scores
from fedwatt.journeys.mixture import Mixture
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Client


def fleet_intervals(
    fleet: Intervals, client: Client, predicted: FloatArray, prior: TripPrior
) -> tuple[Calibration, TripPrior]:
    """Return error bars of a vehicle, calibrated on the other vehicles, and its prior in Wh.

    `predicted` are scaled predictions of its validation windows, `prior` is in label scales. A
    vehicle that contributed to the fleet's intervals takes its own contribution off.
    """
    scores = validation_scores(client, predicted, prior)
    own = contribution(scores, fleet.means)
    others = fleet.without(own) if fleet.includes(own) else fleet
    kind = "in_trip" if others.counts["in_trip"].any() else "windows"
    scaled = in_wh(prior, client.label_scale_wh)
    scaled = replace(scaled, factor=others.factor(kind, scores[kind]))
    bars = Calibration(
        level=LEVEL,
        trips=others.trips,
        source=f"trips of {others.vehicles} other vehicles",
        window_factor=others.factor("windows", scores["windows"]),
        trip_factor=others.factor("trips", scores["trips"]),
        speed_column=client.features.index("speed") if "speed" in client.features else -1,
        vehicles=others.vehicles,
        window=client.window,
        prior=scaled,
    )
    return bars, scaled


def balance_entry(mixture: Mixture | None, client: Client) -> dict[str, Any]:
    """Return the card's entry on the trip balance; empty where the vehicle uses none."""
    balance = None if mixture is None else mixture.balance
    if balance is None or client.scaler is None or client.scaler.mix is not None:
        return {}
    return balance.to_json() | {
        "feature_center": client.scaler.center.tolist(),
        "feature_scale": client.scaler.scale.tolist(),
        "label_scale_wh": client.label_scale_wh,
    }
