"""A trip as one self-contained page, in the manner of a run's report."""

import re

import numpy as np

from fedwatt.edge.card import ModelCard
from fedwatt.edge.drive_page import MapLine, drive_page, map_drawn, score
from fedwatt.edge.figures import MEASURED, PREDICTED, trip_figures
from fedwatt.edge.forecast import Forecast
from fedwatt.edge.route_forecast import spread_text
from fedwatt.edge.trips import RangeEstimate, TripPrediction
from fedwatt.report.style import name_of
from fedwatt.telemetry.channels import POSITION


def render(forecast: Forecast) -> str:
    """Return the page as text."""
    prediction = forecast.prediction
    card = forecast.card
    reach = forecast.reach
    return drive_page(
        [*map_drawn(_map_line(forecast)), *trip_figures(prediction, forecast.soc)],
        {"--predicted": PREDICTED, "--measured": MEASURED},
        headline=headline(forecast),
        scores=scores(prediction, reach, card.role_of(prediction.trip.name, forecast.vehicle)),
        trip=f"{forecast.kind} {prediction.trip.name}",
        vehicle=forecast.vehicle or card.vehicle,
        table=None,
        remarks=[],
        facts=model_facts(card),
    )


def _map_line(forecast: Forecast) -> list[MapLine]:
    """Return the trip with its energy, for the map; empty without positions."""
    channels = forecast.trip.channels
    if any(name not in channels for name in POSITION):
        return []
    latitude_deg, longitude_deg = (channels[name] for name in POSITION)
    placed = np.isfinite(latitude_deg) & np.isfinite(longitude_deg)
    if not placed.any():
        return []
    energy_wh = np.cumsum(forecast.prediction.predicted_wh)
    metres = np.cumsum(channels["speed_mps"])
    columns = (latitude_deg, longitude_deg, energy_wh, metres)
    return [MapLine(forecast.trip.name, *(column[placed] for column in columns))]


def headline(forecast: Forecast) -> str:
    """Return the answer, and on a recorded trip how far off it was."""
    sentence = forecast.answer()
    error = forecast.prediction.relative_error
    if error is not None and forecast.reach is None:
        sign = "more" if error > 0 else "less"
        off = f"{abs(error):.0%} {sign} than measured"
        sentence += ", as measured" if abs(error) < 0.005 else f", {off}"
    return keep_units(sentence)


def keep_units(sentence: str) -> str:
    """Return the sentence with a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:Wh|km|kWh|%)\b|%)", "\u00a0", sentence)


def scores(
    prediction: TripPrediction, reach: RangeEstimate | None, role: str = ""
) -> list[dict[str, str]]:
    """Return the headline numbers of a trip page, each with title, value, unit, remark and colour.

    `role` is the trip's split (`ModelCard.role_of`).
    """
    interval = prediction.interval_wh
    measured = prediction.measured_total_wh
    remark = "no prediction interval"
    if interval is not None:
        remark = f"{spread_text(*interval, 'Wh')} in {100 * prediction.level:.0f} % of trips"
    made = [score("Predicted", f"{prediction.total_wh:,.0f}", "Wh", remark, "--predicted")]
    if measured is not None:
        remark = "at the pack"
        if interval is not None:
            inside = interval[0] <= measured <= interval[1]
            remark = f"{'inside' if inside else 'outside'} the interval"
        if role:
            remark += f"; a {role} trip, so no test"
        made.append(score("Measured", f"{measured:,.0f}", "Wh", remark, "--measured"))
    per_km = (
        f"{prediction.total_wh / prediction.kilometres:,.0f}" if prediction.kilometres > 0 else "–"
    )
    minutes = prediction.trip.seconds / 60
    made.append(score("Consumption", per_km, "Wh/km", f"{minutes:.0f} minutes", "--muted"))
    climb_known = prediction.climb_known
    if climb_known is not None:
        unknown = len(climb_known) - int(climb_known.sum())
        remark = f"unknown in {unknown:,} of {len(climb_known):,} windows"
        made.append(score("Climb known", f"{100 * climb_known.mean():.0f}", "%", remark, "--muted"))
    return made if reach is None else [_soc_score(prediction, reach), *made]


def _soc_score(prediction: TripPrediction, reach: RangeEstimate) -> dict[str, str]:
    remark = f"{reach.remaining_km:,.0f} km left after it"
    if not reach.reaches:
        remark = f"the battery is empty after {reach.range_km:,.1f} km"
    if prediction.interval_wh is not None:
        low = 100 * max(reach.arrival_low, 0)
        high = 100 * max(reach.arrival_high, 0)
        remark = (
            f"{spread_text(low, high, '%')} in {100 * prediction.level:.0f} % of trips; {remark}"
        )
    arrival = f"{100 * max(reach.arrival, 0):.0f}"
    return score("SoC on arrival", arrival, "%", remark, "--accent")


def model_facts(card: ModelCard) -> dict[str, str]:
    """Return the model's card for people."""
    pairs = zip(card.features, card.units, strict=True)
    bars = card.calibration
    return {
        "Model": f"{card.backbone.upper()} trained by {name_of(card.method)}"
        + (", personalised" if card.personalised else ""),
        "Scaling of": card.vehicle,
        "Features": ", ".join(f"{name} ({unit})" for name, unit in pairs),
        "Window": f"{card.window} samples, one every {card.interval_s:g} s",
        "Elevation": _elevation(card),
        "Prediction intervals": f"{bars['trips']} {bars['source']}" if bars else "none",
        "Form": card.form,
        "Run": card.run_hash,
        "Library": f"fedwatt {card.library}",
    }


def _elevation(card: ModelCard) -> str:
    if not card.elevation:
        return "not known to the model"
    source = "the vehicle's own elevation"
    if "nodes" in card.elevation:
        first = (
            f"{source}, and where it is not known " if card.elevation["source"] == "auto" else ""
        )
        source = (
            f"{first}{card.elevation['nodes']:,} nodes {card.elevation['cell_m']:g} m apart, "
            "from the fleet and, on roads of this vehicle alone, from its trips"
        )
    return f"{source}; elsewhere climb is unknown"
