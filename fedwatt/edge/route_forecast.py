"""Forecast routes through a model: all that `fedwatt route` and the service show and draw."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fedwatt.edge.reading import read_route
from fedwatt.errors import SettingError, counted
from fedwatt.journeys.charge import Arrival, arrival, refuse_impossible_charge
from fedwatt.journeys.route import Route
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import NAMES, RouteForecast, RouteModel
from fedwatt.telemetry.trip import FloatArray

LEVELS = (0.5, 0.9)
MASS_FEATURES = ("distance", "climb", "descent", "drive", "brake")
"""Features of a route whose energy grows with mass: rolling, climbing and changes of speed."""
Number = float | FloatArray
Mapped = Callable[[FloatArray, FloatArray], FloatArray]
"""Elevations [points] from latitudes and longitudes, NaN where not known."""


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Conditions of a trip before it begins.

    depart         time of departure; None: unknown, then no time of arrival is given
    temperature_c  outside; None: as recorded, where the route is a recorded trip's
    soc            state of charge at departure, 0 to 1; None: unknown
    capacity_wh    usable capacity; None: the model's
    load_kg        passengers and luggage beyond the driver
    mass_kg        mass of the vehicle; None: the model's
    consumption    mean consumption of the vehicle, Wh/km; None: unknown
    kind           class of the vehicle, for its usual mass
    vehicle        folder of the vehicle with its own trips; None: it has none
    elevation      map of elevations for routes that bring none; None: no map
    """

    depart: datetime | None = None
    temperature_c: float | None = None
    soc: float | None = None
    capacity_wh: float | None = None
    load_kg: float = 0.0
    mass_kg: float | None = None
    consumption: float | None = None
    kind: str = "passenger"
    vehicle: Path | None = None
    elevation: Mapped | None = None

    def __post_init__(self) -> None:
        if self.soc is not None:
            refuse_impossible_charge(self.soc)
        if self.consumption is not None and not 50 <= self.consumption <= 5000:
            raise SettingError(
                f"A consumption of {self.consumption:g} Wh/km is no vehicle's. Give --consumption "
                "in Wh/km: 15.2 kWh/100 km is 152."
            )
        if self.mass_kg is not None and not 100 <= self.mass_kg <= 60_000:
            raise SettingError(f"No road vehicle has {self.mass_kg:g} kg: give --mass in kg.")
        if not 0 <= self.load_kg <= 30_000:
            raise SettingError(f"A load of {self.load_kg:g} kg cannot be: give --load in kg.")


@dataclass(frozen=True, eq=False)
class PlannedRoute:
    """One alternative: its forecast and, with a state of charge, that on arrival."""

    forecast: RouteForecast
    temperature_c: float
    arrival: Arrival | None
    depart: datetime | None

    @property
    def name(self) -> str:
        """Name of the route."""
        return self.forecast.route.name

    def answer(self) -> str:
        """Return the forecast in one sentence: state of charge on arrival, or else the energy."""
        forecast = self.forecast
        left = self.arrival
        if left is None:
            ends = interval(forecast.energy_levels_wh[-1] / 1000, 0.9)
            return f"It takes {with_spread(forecast.total_wh / 1000, *ends, 'kWh', 2)}"
        if left.left < 0:
            reach = f"after {_reach(left.reach_m)}" if np.isfinite(left.reach_m) else "on the way"
            return f"The battery is empty {reach} ({_chance(left.likely)} to arrive)"
        ends = interval(100 * np.maximum(left.levels, 0), 0.9)
        return f"You arrive with {with_spread(100 * left.left, *ends, '%')}"

    def rows(self) -> list[tuple[str, str]]:
        """Return the numbers of the route: (name, value with its unit)."""
        forecast = self.forecast
        rows = [
            ("distance", f"{forecast.metres[-1] / 1000:.1f} km"),
            ("climb, descent", _climbs(forecast)),
            ("energy", f"{forecast.total_wh / 1000:.2f} kWh"),
            *_interval_rows(forecast.energy_levels_wh[-1] / 1000, "kWh", 2),
            ("consumption", f"{forecast.total_wh / forecast.metres[-1] * 1000:.0f} Wh/km"),
            ("duration", f"{forecast.seconds[-1] / 60:.0f} min"),
            *_interval_rows(forecast.duration_levels_s / 60, "min"),
        ]
        if self.depart is not None:
            rows.append(("arrival", self._arrives(self.depart)))
        return [*rows, *self._soc_rows()]

    def _arrives(self, depart: datetime) -> str:
        low, high = (float(end) for end in interval(self.forecast.duration_levels_s, 0.9))
        times = [
            (depart + timedelta(minutes=round(s / 60))).strftime("%H:%M")
            for s in (float(self.forecast.seconds[-1]), low, high)
        ]
        return f"{times[0]} ({times[1]} to {times[2]})"

    def _soc_rows(self) -> list[tuple[str, str]]:
        arrival = self.arrival
        if arrival is None:
            return []
        return [
            ("SoC on arrival", f"{100 * max(arrival.left, 0):.0f} %"),
            *_interval_rows(100 * np.maximum(arrival.levels, 0), "%"),
            ("chance to arrive", _chance(arrival.likely)),
            ("range [90 %]", _range(arrival)),
        ]


def spread_text(low: Number, high: Number, unit: str, digits: int = 0) -> str:
    """Return both ends of an interval, with as many digits as tell them apart.

    >>> spread_text(24.2, 38.4, "%"), spread_text(4.9, 5.2, "%"), spread_text(5.0, 5.0, "%")
    ('24 to 38 %', '4.9 to 5.2 %', '5 %')
    """
    for places in range(digits, 3):
        ends = [f"{float(end):,.{places}f}".replace("-", "−") for end in (low, high)]
        if ends[0] != ends[1]:
            return f"{ends[0]} to {ends[1]} {unit}"
    return f"{float(low):,.{digits}f} {unit}"


def with_spread(value: float, low: Number, high: Number, unit: str, digits: int = 0) -> str:
    """Return a number with its interval, both with as many digits.

    >>> with_spread(57.2, 55.1, 58.4, "%"), with_spread(60.04, 59.9, 60.2, "%")
    ('57 % (55 to 58 %)', '60.0 % (59.9 to 60.2 %)')
    """
    spread = spread_text(low, high, unit, digits)
    places = len(spread.partition(" ")[0].partition(".")[2])
    return f"{value:,.{places}f} {unit} ({spread})"


def _climbs(forecast: RouteForecast) -> str:
    rise = np.diff(forecast.height_m, prepend=0.0)
    if not forecast.hilly:
        return "unknown"
    return f"{rise[rise > 0].sum():.0f} m, {abs(rise[rise < 0].sum()):.0f} m"


def _interval_rows(levels: FloatArray, unit: str, digits: int = 0) -> list[tuple[str, str]]:
    return [
        (f"{100 * share:.0f} % interval", spread_text(*interval(levels, share), unit, digits))
        for share in LEVELS
    ]


def _chance(likely: float) -> str:
    if likely >= 0.99:
        return "over 99 %"
    return "under 1 %" if likely <= 0.01 else f"{100 * likely:.0f} %"


def _range(arrival: Arrival) -> str:
    low, high = arrival.reach(0.9)
    if np.isinf(low):
        return "beyond the end"
    return f"{_reach(arrival.reach_m)} [{_reaches(low, high)}]"


def _reach(metres: float) -> str:
    return "the end" if np.isinf(metres) else f"{metres / 1000:.1f} km"


def _reaches(low: float, high: float) -> str:
    return f"{_reach(low)} to {_reach(high)}"


@dataclass(frozen=True, eq=False)
class RoutePlan:
    """Alternatives side by side, by one vehicle's model."""

    model: RouteModel
    routes: tuple[PlannedRoute, ...]

    @property
    def title(self) -> str:
        """Title: the vehicle whose routes these are."""
        return f"Routes of {self.model.vehicle or 'an unseen vehicle'}"

    def remarks(self) -> list[str]:
        """Return remarks that a reader of the numbers needs, one sentence each."""
        sentences = [] if self.model.trips else [self._unseen_remark()]
        for planned in self.routes:
            sentences += _route_remarks(planned, placed=bool(len(self.model.field.cells.keys)))
        return sentences

    def _unseen_remark(self) -> str:
        model = self.model
        scaled = ""
        if model.display:
            scaled = f", and a recent consumption {model.display:.2f} times the fleet's"
        return (
            "The model has no trips of this vehicle: it uses the mean coefficients of "
            f"{counted(model.fleet_vehicles, 'vehicle')} and a mass of {model.mass_kg:,.0f} kg"
            f"{scaled}. Its 90 % intervals are {model.bars['energy'].wider:.1f} times as wide as "
            "those of a vehicle with trips."
        )


def _route_remarks(planned: PlannedRoute, *, placed: bool) -> list[str]:
    """Return remarks on one route; `placed` says whether the model knows any place."""
    forecast = planned.forecast
    sentences = []
    if placed and forecast.known < 0.9:
        sentences.append(
            f"The fleet has driven {100 * forecast.known:.0f} % of {planned.name}; for the rest "
            "the usual driving is assumed, and the intervals are wider."
        )
    if forecast.hilly < 0.9:
        sentences.append(
            f"No elevation is known for {100 * (1 - forecast.hilly):.0f} % of {planned.name}: it "
            "counts as flat there. Add elevations to the route's points, or a terrain model: --dem."
        )
    if planned.arrival is not None and planned.arrival.left < 0:
        low, high = planned.arrival.reach(0.9)
        sentences.append(
            f"On {planned.name} the battery would be empty after {_reach(planned.arrival.reach_m)} "
            f"(90 % interval {_reaches(low, high)})."
        )
    return sentences


def plan_routes(model: RouteModel, routes: Sequence[Path], plan: Departure) -> RoutePlan:
    """Return the routes at `routes` as a vehicle's model predicts them."""
    planned = []
    for path in routes:
        route, recorded_c = read_route(path)
        temperature = recorded_c if plan.temperature_c is None else plan.temperature_c
        if temperature is None:
            raise SettingError(
                f"Route '{route.name}' does not say how cold it is, and heating can double what a "
                "short trip takes. Give the outside temperature: --temperature -3."
            )
        planned.append(plan_route(model, route, temperature, plan))
    return RoutePlan(model, tuple(planned))


def plan_route(
    model: RouteModel, route: Route, temperature_c: float, plan: Departure
) -> PlannedRoute:
    """Return one route as a vehicle's model predicts it."""
    capacity_wh = plan.capacity_wh or model.capacity_wh
    if plan.soc is not None and not capacity_wh:
        raise SettingError("A state of charge needs a capacity: give --capacity in kWh.")
    has_elevation = route.elevation_m is not None and np.isfinite(route.elevation_m).any()
    if plan.elevation is not None and not has_elevation:
        mapped_m = plan.elevation(route.latitude_deg, route.longitude_deg)
        route = replace(route, elevation_m=mapped_m)
    forecast = model.forecast(route, temperature_c)
    left = None if plan.soc is None else arrival(forecast, plan.soc, capacity_wh)
    return PlannedRoute(forecast, temperature_c, left, plan.depart)


def loaded(model: RouteModel, load_kg: float) -> RouteModel:
    """Return the model of a vehicle that carries `load_kg` more than usual."""
    if not load_kg:
        return model
    heavier = 1 + load_kg / model.mass_kg
    factors = np.where(np.isin(NAMES, MASS_FEATURES), heavier, 1.0)
    energy = model.coefficients["energy"]
    more = replace(energy, beta=energy.beta * factors)
    return replace(model, coefficients={**model.coefficients, "energy": more})


def refuse_scaling(plan: Departure, where: str) -> None:
    """Raise if a plan scales a model that is already one vehicle's."""
    if (plan.vehicle, plan.mass_kg, plan.consumption) != (None, None, None):
        raise SettingError(
            f"{where} is one vehicle's: leave --vehicle, --mass and --consumption out."
        )
