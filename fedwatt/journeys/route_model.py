"""A vehicle's model of routes: energy, duration and charge along a way that nobody has driven yet.

The features of a route grow step by step (`route_features`), so one product with the vehicle's
coefficients gives the energy up to every step, and `route_intervals` the errors to expect there.

Features of a route, from the fleet's driving there, its elevation and the weather.

Every feature grows along the way, so a row for each step gives the energy up to there:

    distance, climb, descent
    time, air, drive, brake, standing   what the driving field expects
    cold · time, hot · time, frost · time, cold · distance
    start-up 1 - e^(-t/τ) for τ of 5 and 15 minutes, alone and times cold or hot

with cold = max(18 °C - T, 0), frost = max(5 °C - T, 0), hot = max(T - 22 °C, 0). Nothing is known
of how this trip will really be driven.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedwatt.elevation.climb import rise_m
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.driving_field import DrivingField
from fedwatt.journeys.in_trip import UnderWay
from fedwatt.journeys.route import Route
from fedwatt.journeys.route_intervals import Bars
from fedwatt.telemetry.trip import FloatArray

NAMES = (
    "distance",
    "climb",
    "descent",
    "time",
    "air",
    "drive",
    "brake",
    "standing",
    "cold time",
    "hot time",
    "frost time",
    "cold distance",
    "start",
    "slow start",
    "cold start",
    "cold slow start",
    "hot start",
)
COLD_C = 18.0
FROST_C = 5.0
HOT_C = 22.0
SMOOTH_M = 200.0
START_S = 300.0
SLOW_START_S = 900.0


def route_rise_m(route: Route, elevations: ElevationMap | None) -> tuple[FloatArray, FloatArray]:
    """Return metres gained in each step and whether that is known, each [steps]; level elsewhere.

    Elevations that came with the route count before those of the map `elevations`.
    """
    rise = np.full(route.steps, np.nan)
    metres = np.full(route.steps + 1, route.step_m)
    if elevations is not None:
        rise = rise_m(*elevations.read(route.latitude_deg, route.longitude_deg), metres)[1:]
    if route.elevation_m is not None:
        region = np.zeros(route.steps + 1, dtype=np.int64)
        from_route = rise_m(_smoothed(route.elevation_m, route.step_m), region, metres)[1:]
        rise = np.where(np.isfinite(from_route), from_route, rise)
    return np.nan_to_num(rise), np.isfinite(rise).astype(np.float64)


def _smoothed(elevation_m: FloatArray, step_m: float) -> FloatArray:
    """Return elevations averaged over `SMOOTH_M`, so that their noise is not climb and descent."""
    reach = round(SMOOTH_M / step_m / 2)
    kernel = np.ones(2 * reach + 1)
    finite = np.isfinite(elevation_m)
    total = np.convolve(np.pad(np.where(finite, elevation_m, 0.0), reach), kernel, "valid")
    count = np.convolve(np.pad(finite.astype(np.float64), reach), kernel, "valid")
    return np.where(finite, total / np.maximum(count, 1.0), np.nan)


def route_features(
    route: Route, rates: FloatArray, rise: FloatArray, temperature_c: float
) -> FloatArray:
    """Return features from the start to the end of each step, [steps, 17].

    `rates` [steps, 6] are the driving field's, per metre of route.
    """
    driven = np.cumsum(rates * route.step_m, axis=0)
    wheel_m, seconds, air, drive, brake, standing = driven.T
    cold = max(COLD_C - temperature_c, 0.0)
    frost = max(FROST_C - temperature_c, 0.0)
    hot = max(temperature_c - HOT_C, 0.0)
    start = 1 - np.exp(-seconds / START_S)
    slow = 1 - np.exp(-seconds / SLOW_START_S)
    kilometres = wheel_m / 1000
    minutes = seconds / 60
    columns = [
        kilometres,
        np.cumsum(np.maximum(rise, 0)),
        np.cumsum(np.maximum(-rise, 0)),
        minutes,
        air,
        drive,
        brake,
        standing / 60,
        cold * minutes,
        hot * minutes,
        frost * minutes,
        cold * kilometres,
        start,
        slow,
        cold * start,
        cold * slow,
        hot * start,
    ]
    return np.stack(columns, axis=1)


TARGETS = ("energy", "duration")
LEAST_KNOWN = 0.2
"""Share of a route's metres that the fleet must know, or nothing is predicted."""

FASTEST_MPS = 40.0
DISPLAY_TRUST = 0.7
"""Of a consumption on the display; the rest is the fleet's expectation at the vehicle's mass."""
DISPLAY_C = 14.0
"""Mean outside temperature of the fleet's trips, at which its mean consumption applies."""
SHORTEST = 2 / 3
LONGEST = 3 / 2
"""Of the time that the driving field expects."""


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Energy, or seconds, of a unit of each feature, [17], times the vehicle's scale s_v.

    The coefficients of energy include the vehicle's mass.
    """

    beta: FloatArray
    scale: float


def seconds_along(x: FloatArray, beta: FloatArray) -> FloatArray:
    """Time up to the end of each step, [steps], from features [steps, 17].

    Time only goes on, and is from two thirds to three halves of what the driving field expects: in
    weather that a small fleet has not seen, linear coefficients may say anything.
    """
    expected = 60 * x[:, NAMES.index("time")]
    bounded = np.clip(x @ beta, SHORTEST * expected, LONGEST * expected)
    return np.maximum.accumulate(bounded)


@dataclass(frozen=True, eq=False)
class RouteForecast:
    """A route as a vehicle would drive it; arrays run over its steps.

    metres      from the start to the end of each step
    energy_wh   energy up to there, as predicted, and its 99 levels [steps, 99]
    seconds     time up to there, as predicted; its 99 levels are of the whole route [99]
    height_m    above the start; level where elevations are not known
    known       share of the metres whose driving the fleet knows
    hilly       share of the metres whose climb is known
    """

    route: Route
    metres: FloatArray
    energy_wh: FloatArray
    energy_levels_wh: FloatArray
    seconds: FloatArray
    duration_levels_s: FloatArray
    height_m: FloatArray
    known: float
    hilly: float

    @property
    def total_wh(self) -> float:
        """Energy of the whole route."""
        return float(self.energy_wh[-1])

    @property
    def speed_mps(self) -> FloatArray:
        """Expected mean speed of each step."""
        step = self.route.step_m
        return step / np.maximum(np.diff(self.seconds, prepend=0.0), step / FASTEST_MPS)


@dataclass(frozen=True, eq=False)
class RouteModel:
    """The complete predictor of a vehicle's routes.

    trips           of its own that taught it; 0: an unseen vehicle
    fleet_vehicles  that taught the fleet's part
    capacity_wh     usable, where it is known; else 0
    elevations      that it reads climb from; None: every road is level
    display         recent consumption on the display over the fleet's mean; 0: unknown
    """

    vehicle: str
    trips: int
    fleet_vehicles: int
    mass_kg: float
    capacity_wh: float
    field: DrivingField
    coefficients: Mapping[str, Coefficients]
    bars: Mapping[str, Bars]
    elevations: ElevationMap | None = None
    display: float = 0.0

    def forecast(self, route: Route, temperature_c: float) -> RouteForecast:
        """Return the route at an outside temperature; refused where the fleet knows next to
        nothing.
        """
        if not -60 <= temperature_c <= 60:
            raise SettingError(
                f"An outside temperature of {temperature_c:g} °C cannot be: give degrees Celsius."
            )
        rates, driven = self.field.along(route)
        share = float(driven.mean())
        if share < LEAST_KNOWN:
            self._refuse_unknown(route, share)
        rise, hilly = route_rise_m(route, self.elevations)
        # A model of roads alone was calibrated with known climb and no place.
        sure = share if len(self.field.cells.keys) else float(hilly.mean())
        x = route_features(route, rates, rise, temperature_c)
        metres = route.metres_at
        energy = x @ self.coefficients["energy"].beta
        if self.display:
            # The display has the present cold in it: it scales the energy in usual weather.
            in_usual_weather = route_features(route, rates, rise, DISPLAY_C)
            displayed = self.display * in_usual_weather @ self.coefficients["energy"].beta
            energy = (1 - DISPLAY_TRUST) * energy + DISPLAY_TRUST * displayed
        seconds = seconds_along(x, self.coefficients["duration"].beta)
        seconds = np.maximum(seconds, metres / FASTEST_MPS)
        errors = self.bars["energy"].errors(metres, energy, x, 1 - sure)
        late = self.bars["duration"].errors(metres[-1:], seconds[-1:], x[-1:], 1 - sure)[0]
        return RouteForecast(
            route,
            metres,
            energy,
            energy[:, None] + errors,
            seconds,
            np.maximum(seconds[-1] + late, metres[-1] / FASTEST_MPS),
            np.cumsum(rise),
            share,
            float(hilly.mean()),
        )

    def in_trip(self, forecast: RouteForecast) -> UnderWay:
        """Return a forecast that is corrected while the route is driven, with its error bars."""
        errors_wh = forecast.energy_levels_wh[-1] - forecast.total_wh
        return UnderWay(forecast.metres, forecast.energy_wh, forecast.seconds, errors_wh)

    def _refuse_unknown(self, route: Route, share: float) -> None:
        """Raise if latitude and longitude are exchanged, or no classes of roads are known."""
        swapped = Route(route.name, route.longitude_deg, route.latitude_deg, route.step_m)
        if np.abs(swapped.latitude_deg).max() <= 90:
            driven = self.field.read(swapped.cells(self.field.grid))[1]
            if driven.mean() > max(LEAST_KNOWN, share):
                raise DataError(
                    f"Route '{route.name}': latitude and longitude seem to be exchanged; the other "
                    "way round it goes where the fleet drives."
                )
        if self.field.roads is None:
            raise DataError(
                f"Route '{route.name}' goes where the fleet has not driven: it knows {share:.0%} "
                f"of the way, and at least {LEAST_KNOWN:.0%} are needed for a meaningful number."
            )
