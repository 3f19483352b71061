"""Routes through a model: all that `fedwatt route` shows and draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.route_reading import read_route
from fedwatt.elevation.survey import USUAL_MASS_KG
from fedwatt.errors import DataError, SettingError, counted, unknown
from fedwatt.journeys.charge import Arrival, arrival, refuse_impossible_charge
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import RouteForecast, RouteModel
from fedwatt.telemetry.trip import FloatArray

BARS = (0.5, 0.9)


@dataclass(frozen=True, kw_only=True)
class Departure:
    """The forecast of a trip before it begins.

    depart         when; None: not said, then no time of arrival is given
    temperature_c  outside; None: as recorded, where the route is a recorded trip's
    charge         0 to 1 at the start, and the usable capacity; None: not said
    mass_kg        of a vehicle with no trips, for a run folder
    consumption    what that vehicle takes in the mean, Wh/km; None: nobody knows
    """

    depart: datetime | None = None
    temperature_c: float | None = None
    charge: float | None = None
    capacity_wh: float | None = None
    mass_kg: float | None = None
    consumption: float | None = None
    kind: str = "passenger"
    vehicle: Path | None = None

    def __post_init__(self) -> None:
        if self.charge is not None:
            refuse_impossible_charge(self.charge)
        if self.consumption is not None and not 50 <= self.consumption <= 5000:
            raise SettingError(
                f"A consumption of {self.consumption:g} Wh/km is no vehicle's. Give --consumption "
                "in Wh/km: 15.2 kWh/100 km is 152."
            )


@dataclass(frozen=True, eq=False)
class PlannedRoute:
    """One alternative: its forecast and, with a charge, what it leaves."""

    forecast: RouteForecast
    temperature_c: float
    arrival: Arrival | None
    depart: datetime | None

    @property
    def name(self) -> str:
        """The route's."""
        return self.forecast.route.name

    def rows(self) -> list[tuple[str, str]]:
        """Return the numbers of the route: (what, value with its unit)."""
        forecast = self.forecast
        rows = [
            ("distance", f"{forecast.metres[-1] / 1000:.1f} km"),
            ("climb, descent", _climbs(forecast)),
            ("energy", f"{forecast.total_wh / 1000:.2f} kWh"),
            *_bar_rows(forecast.energy_levels_wh[-1] / 1000, "{:.2f} to {:.2f} kWh"),
            ("consumption", f"{forecast.total_wh / forecast.metres[-1] * 1000:.0f} Wh/km"),
            ("duration", f"{forecast.seconds[-1] / 60:.0f} min"),
            *_bar_rows(forecast.duration_levels_s / 60, "{:.0f} to {:.0f} min"),
        ]
        if self.depart is not None:
            rows.append(("arrival", self._arrives()))
        return [*rows, *self._charge_rows()]

    def _arrives(self) -> str:
        assert self.depart is not None
        low, high = (float(end) for end in interval(self.forecast.duration_levels_s, 0.9))
        times = [
            (self.depart + timedelta(minutes=round(s / 60))).strftime("%H:%M")
            for s in (float(self.forecast.seconds[-1]), low, high)
        ]
        return f"{times[0]} ({times[1]} to {times[2]})"

    def _charge_rows(self) -> list[tuple[str, str]]:
        arrival = self.arrival
        if arrival is None:
            return []
        return [
            ("charge on arrival", f"{100 * max(arrival.left, 0):.0f} %"),
            *_bar_rows(100 * np.maximum(arrival.levels, 0), "{:.0f} to {:.0f} %"),
            ("chance to arrive", _chance(arrival.likely)),
            ("charge reaches", _reach(arrival.reach_m)),
            *((f"{100 * share:.0f} % of cases", _reaches(*arrival.reach(share))) for share in BARS),
        ]


def _climbs(forecast: RouteForecast) -> str:
    rise = np.diff(forecast.height_m, prepend=0.0)
    if not forecast.hilly:
        return "not known"
    return f"{rise[rise > 0].sum():.0f} m, {-rise[rise < 0].sum():.0f} m"


def _bar_rows(levels: FloatArray, form: str) -> list[tuple[str, str]]:
    return [
        (f"{100 * share:.0f} % of cases", form.format(*interval(levels, share))) for share in BARS
    ]


def _chance(likely: float) -> str:
    if likely >= 0.99:
        return "over 99 %"
    return "under 1 %" if likely <= 0.01 else f"{100 * likely:.0f} %"


def _reach(metres: float) -> str:
    return "the end" if np.isinf(metres) else f"{metres / 1000:.1f} km"


def _reaches(low: float, high: float) -> str:
    if np.isinf(low):
        return "the end"
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
        model = self.model
        made = []
        if not model.trips:
            scale = model.coefficients["energy"].scale
            scale_note = (
                "" if scale == 1 else f", times {scale:.2f} for the consumption that was given"
            )
            made.append(
                f"An unseen vehicle: no trips of its own taught this. It has the coefficients of "
                f"{counted(model.fleet_vehicles, 'vehicle')} and a mass of {model.mass_kg:,.0f} "
                f"kg{scale_note}, and its 90 % bars are {model.bars['energy'].wider:.1f} times as "
                "wide "
                "as theirs."
            )
        for planned in self.routes:
            if planned.forecast.known < 0.9:
                made.append(
                    f"{planned.name}: the fleet knows {planned.forecast.known:.0%} of the way; "
                    "elsewhere "
                    "it counts as driven as usual, and the bars are wider for it."
                )
            if planned.forecast.hilly < 0.9:
                made.append(
                    f"{planned.name}: the climb of {1 - planned.forecast.hilly:.0%} of the way "
                    "is not "
                    "known, and counts as level."
                )
            arrival = planned.arrival
            if arrival is not None and arrival.left < 0:
                low, high = arrival.reach(0.9)
                made.append(
                    f"{planned.name}: the charge would run out after {_reach(arrival.reach_m)} "
                    f"(in 90 % of cases {_reaches(low, high)})."
                )
        return made


def plan_routes(model: Path, routes: Sequence[Path], plan: Departure) -> RoutePlan:
    """Return the routes at `routes` through a model file, or through the fleet of a run folder.

    A run folder predicts for `plan.vehicle`, or for an unseen vehicle of `plan.mass_kg`.
    """
    route_model = opened_routes(model, plan)
    capacity = plan.capacity_wh or route_model.capacity_wh
    if plan.charge is not None and not capacity:
        raise SettingError("A charge says little without a capacity: give --capacity in kWh.")
    planned = []
    for path in routes:
        route, recorded_c = read_route(path)
        temperature = recorded_c if plan.temperature_c is None else plan.temperature_c
        if temperature is None:
            raise SettingError(
                f"Route '{route.name}' does not say how cold it is, and heating can double what a "
                "short trip takes. Give the outside temperature: --temperature -3."
            )
        forecast = route_model.forecast(route, temperature)
        left = None if plan.charge is None else arrival(forecast, plan.charge, capacity)
        planned.append(PlannedRoute(forecast, temperature, left, plan.depart))
    return RoutePlan(route_model, tuple(planned))


def opened_routes(path: Path, plan: Departure) -> RouteModel:
    """Return the model of routes of a model file or a run folder."""
    if not path.is_dir():
        if (plan.vehicle, plan.mass_kg, plan.consumption) != (None, None, None):
            raise SettingError(
                "A model file is one vehicle's: leave --vehicle, --mass and --consumption out."
            )
        model = EnergyModel(path)
        routes = model.routes()
        if routes is None:
            raise DataError(
                f"{path} knows nothing about routes. Export it with --routes, or give the run's "
                "folder."
            )
        return routes
    # A computer that only predicts has model files, and none of what run folders need.
    from fedwatt.runs.journeys import run_routes, vehicle_routes
    from fedwatt.runs.model_file import read_model_config
    from fedwatt.telemetry.store import read_vehicle

    config = read_model_config(path)
    if plan.vehicle is None:
        if plan.kind not in USUAL_MASS_KG:
            raise SettingError(unknown("class of vehicle", plan.kind, USUAL_MASS_KG))
        mass = USUAL_MASS_KG[plan.kind] if plan.mass_kg is None else plan.mass_kg
        if not 100 <= mass <= 60_000:
            raise SettingError(f"A vehicle of {mass:g} kg is none of the road: give --mass in kg.")
        return run_routes(path, config).unseen_vehicle(mass, plan.consumption)
    if plan.consumption is not None:
        raise SettingError(
            "--consumption is for a vehicle without trips: --vehicle learns it from its own."
        )
    return vehicle_routes(path, config, read_vehicle(plan.vehicle))
