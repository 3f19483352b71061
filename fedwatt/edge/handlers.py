"""Handle the requests of the service: JSON in, JSON out, checked before by the OpenAPI document."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from fedwatt import __version__
from fedwatt.edge.card import Section, sections
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.pretrained import (
    PRETRAINED,
    file_routes,
    opened,
    pretrained_card,
    route_model,
)
from fedwatt.edge.reading import gpx_points
from fedwatt.edge.route_forecast import (
    Departure,
    PlannedRoute,
    RoutePlan,
    loaded,
    plan_route,
    refuse_scaling,
)
from fedwatt.edge.trips import Forecast, estimate_range, predict_trip
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.route import Route, route_of
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import RouteModel
from fedwatt.telemetry.channels import CHANNELS, STORED
from fedwatt.telemetry.trip import FloatArray, Trip
from fedwatt.windows.features import MAY_BE_UNKNOWN

try:
    from jsonschema_rs import validator_for
except ImportError as problem:  # pragma: no cover
    raise SettingError(
        "The service needs jsonschema-rs: pip install 'fedwatt[serve]'."
    ) from problem

LONGEST_ROUTE_KM = 1000.0
"""Of one request: prediction intervals of every step take about 40 MB at this length."""


@dataclass(frozen=True, eq=False)
class Handlers:
    """The requests that one model answers.

    name    of the vehicle or of the pre-trained model
    routes  plan → the vehicle's model of routes
    card    the model card for people
    model   the model of windows; None for a pre-trained model, which knows routes alone
    """

    name: str
    routes: Callable[[Departure], RouteModel]
    card: Sequence[Section]
    model: EnergyModel | None = None

    @staticmethod
    def of(name: str) -> "Handlers":
        """Return the handlers for a pre-trained model or a model file."""
        if name in PRETRAINED:
            return Handlers(name, lambda plan: route_model(name, plan), pretrained_card(name))
        model = opened(name)

        @cache
        def base() -> RouteModel:
            return file_routes(model)

        def routes(plan: Departure) -> RouteModel:
            refuse_scaling(plan, name)
            return loaded(base(), plan.load_kg)

        return Handlers(model.card.vehicle, routes, sections(model.card), model)

    def route(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the prediction of a RouteRequest."""
        plan = Departure(
            temperature_c=float(body["temperature_c"]),
            soc=_times(body.get("soc_percent"), 0.01),
            capacity_wh=_times(body.get("capacity_kwh"), 1000.0),
            mass_kg=body.get("mass_kg"),
            load_kg=float(body.get("load_kg", 0.0)),
            consumption=body.get("consumption_wh_per_km"),
        )
        model = self.routes(plan)
        planned = plan_route(model, _requested_route(body), float(body["temperature_c"]), plan)
        return _route_answer(planned, RoutePlan(model, (planned,)))

    def trip(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the prediction of a TripRequest."""
        if self.model is None:
            raise SettingError(
                f"{self.name} predicts routes. Serve a model file of 'fedwatt adapt' for trips."
            )
        trip = _requested_trip(body["channels"])
        prediction = predict_trip(self.model, trip, "")
        ends_wh = prediction.interval_wh
        reach = None
        arrival = None
        if "soc_percent" in body:
            if "capacity_kwh" not in body:
                raise SettingError("A state of charge needs capacity_kwh.")
            capacity_wh = 1000.0 * body["capacity_kwh"]
            reach = estimate_range(prediction, body["soc_percent"] / 100, capacity_wh)
            ends = None if ends_wh is None else (reach.arrival_low, reach.arrival_high)
            arrival = _level(100 * reach.arrival, ends, 100.0, prediction.level)
        forecast = Forecast(trip, "", self.model.card, prediction, reach, None)
        return {
            "answer": f"{forecast.answer()}.",
            "vehicle": self.name,
            "distance_km": round(prediction.kilometres, 3),
            "duration_min": round(trip.seconds / 60, 2),
            "energy_kwh": _level(prediction.total_wh / 1000, ends_wh, 0.001, prediction.level),
            "soc_percent": arrival,
        }

    def description(self) -> dict[str, Any]:
        """Return the model's card for people."""
        rows = [
            {"title": title, "rows": [list(row) for row in entries]} for title, entries in self.card
        ]
        return {"vehicle": self.name, "sections": rows}


def _route_answer(planned: PlannedRoute, plan: RoutePlan) -> dict[str, Any]:
    forecast = planned.forecast
    arrival = planned.arrival
    soc = None
    if arrival is not None:
        soc = _estimate(100 * arrival.left, 100 * arrival.levels)
    return {
        "answer": f"{planned.answer()}.",
        "vehicle": plan.model.vehicle,
        "distance_km": round(float(forecast.metres[-1]) / 1000, 3),
        "energy_kwh": _estimate(forecast.total_wh / 1000, forecast.energy_levels_wh[-1] / 1000),
        "duration_min": _estimate(
            float(forecast.seconds[-1]) / 60, forecast.duration_levels_s / 60
        ),
        "consumption_wh_per_km": round(forecast.total_wh / float(forecast.metres[-1]) * 1000, 1),
        "soc_percent": soc,
        "arrival_probability": None if arrival is None else round(arrival.likely, 2),
        "driving_known": round(forecast.known, 3),
        "climb_known": round(forecast.hilly, 3),
        "remarks": plan.remarks(),
    }


def _estimate(expected: float, levels: FloatArray) -> dict[str, Any]:
    """Return an expected value with its 50 and 90 % intervals, from 99 levels."""
    ends = {
        f"interval_{100 * share:.0f}": [round(float(end), 3) for end in interval(levels, share)]
        for share in (0.5, 0.9)
    }
    return {"expected": round(expected, 3), **ends}


def _level(
    expected: float, ends: tuple[float, float] | None, unit: float, level: float
) -> dict[str, Any]:
    """Return an expected value with the interval of one level; `ends` are in 1 / `unit`."""
    inside = None if ends is None else [round(unit * end, 3) for end in ends]
    return {"expected": round(expected, 3), "interval": inside, "level": level}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _requested_route(body: Mapping[str, Any]) -> Route:
    """Return the route of a request: a GeoJSON geometry, points, or the text of a GPX file."""
    if "gpx" in body:
        route = route_of("route", *gpx_points(body["gpx"], "The GPX text"))
    elif "geometry" in body:
        longitude_deg, latitude_deg, elevation_m = _columns(body["geometry"]["coordinates"])
        route = route_of("route", latitude_deg, longitude_deg, elevation_m)
    else:
        names = ("latitude_deg", "longitude_deg", "elevation_m")
        rows = [[point.get(name, np.nan) for name in names] for point in body["points"]]
        route = route_of("route", *_columns(rows))
    if route.metres > 1000 * LONGEST_ROUTE_KM:
        raise DataError(f"The route is longer than {LONGEST_ROUTE_KM:,.0f} km: cut it into parts.")
    return route


def _columns(rows: Sequence[Sequence[float]]) -> FloatArray:
    """Return the columns of points whose elevation may be left out, [3, points]."""
    return np.array([[*row, np.nan][:3] for row in rows], dtype=np.float64).T


def _requested_trip(channels: Mapping[str, Sequence[float | None]]) -> Trip:
    """Return the trip of a request: one value per second; unreported devices are off."""
    lengths = {len(values) for values in channels.values()}
    if len(lengths) != 1:
        raise DataError("The channels have different lengths: give one value per second in each.")
    columns = {
        name: np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for name, values in channels.items()
    }
    seconds = lengths.pop()
    for name in MAY_BE_UNKNOWN:
        columns.setdefault(name, np.full(seconds, np.nan))
    return Trip("trip", columns)


LONGEST_TRIP_S = 30_000
"""Seconds of a trip in one request: eight hours."""


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document, with this library's version and channels."""
    text = files("fedwatt.edge").joinpath("templates/openapi.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    content["info"]["version"] = __version__
    trip = content["components"]["schemas"]["TripRequest"]["properties"]["channels"]
    trip["properties"] = {name: _channel(name) for name in STORED}
    return content


def _channel(name: str) -> dict[str, Any]:
    """Return the schema of a channel: its values by second, within the limits of cleaning."""
    channel = CHANNELS[name]
    limits = {"minimum": channel.low, "maximum": channel.high}
    finite = {bound: value for bound, value in limits.items() if abs(value) < float("inf")}
    items = {"type": ["number", "null"], **finite}
    return {
        "type": "array",
        "description": channel.unit,
        "minItems": 1,
        "maxItems": LONGEST_TRIP_S,
        "items": items,
    }


@cache
def _validator(name: str) -> Any:
    """Return the validator of the schema of this name, whose messages quote no values."""
    return validator_for({**document(), "$ref": f"#/components/schemas/{name}"}, mask="value")


def first_problem(value: Any, name: str) -> str | None:
    """Return what is wrong with a value for the schema of this name; None if nothing is."""
    error = next(_validator(name).iter_errors(value), None)
    if error is None:
        return None
    path = ".".join(map(str, error.instance_path))
    where = f"Field {path}" if path else "The body"
    return f"{where}: {error.message}."
