"""Predict a recorded or planned trip: energy of each second and of the whole, with intervals.

With a charge, what is left of it on arrival, and the range that it has.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedwatt.edge.calibration import CalibrationTrip, PredictionIntervals
from fedwatt.edge.card import ModelCard
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.pretrained import opened
from fedwatt.edge.reading import read_trip
from fedwatt.edge.route_forecast import spread_text, with_spread
from fedwatt.elevation.climb import climb_from, with_climb
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.charge import charge_along, refuse_impossible_charge, usable_wh
from fedwatt.journeys.memory import (
    PastTrip,
    earlier_trips,
    past_trip,
    remembered_offset,
    trip_coldness,
)
from fedwatt.journeys.mixture import TripBalance
from fedwatt.journeys.totals import energy_by_second, tile_ends
from fedwatt.telemetry.trip import BoolArray, FloatArray, Trip, Vehicle
from fedwatt.windows.features import CLIMB, CLIMB_KNOWN, FEATURES, feature_columns, trip_features
from fedwatt.windows.splits import known_windows, window_ends, window_means, window_sums
from fedwatt.windows.targets import with_measured_energy
from fedwatt.windows.time_offset import delayed

SECONDS_PER_HOUR = 3600.0
ZERO_AT_REST = ("speed_mps", "grade", *CLIMB)
"""Channels that are 0 while a vehicle stands; all others are held."""


@dataclass(frozen=True, eq=False)
class TripPrediction:
    """A trip as a model sees it, [seconds] each unless said otherwise.

    trip          with climb and descent where the model needs them, its motion delayed by the
                  vehicle's time offset
    windows_wh    energy of each window, [windows]; the first ends at second window - 1
    predicted_wh  energy of each second, of windows that tile the trip (`journeys.totals`)
    measured_wh   what left the pack, or None for a plan
    low_wh,       ends of the interval for the energy since the trip began, NaN where the model has
    high_wh       no error bars
    level         of the interval, such as 0.9
    climb_known   whether the climb of each window is known, [windows]; None for a model without
                  elevation
    cold          coldness of the trip (`journeys.filter.coldness`); 0 without a temperature
    offset_wh     what the memory of earlier trips added to each window
    """

    trip: Trip
    windows_wh: FloatArray
    predicted_wh: FloatArray
    measured_wh: FloatArray | None
    low_wh: FloatArray
    high_wh: FloatArray
    level: float
    climb_known: BoolArray | None = None
    cold: float = 0.0
    offset_wh: float = 0.0

    @property
    def total_wh(self) -> float:
        """Predicted energy of the trip."""
        return float(self.predicted_wh.sum())

    @property
    def measured_total_wh(self) -> float | None:
        """Measured energy of the trip."""
        return None if self.measured_wh is None else float(self.measured_wh.sum())

    @property
    def interval_wh(self) -> tuple[float, float] | None:
        """Lower and upper end for the energy of the whole trip; None without error bars."""
        low = float(self.low_wh[-1])
        high = float(self.high_wh[-1])
        return (low, high) if np.isfinite(high) else None

    @property
    def relative_error(self) -> float | None:
        """Predicted less measured energy, as a share of the measured; None where that is 0."""
        measured = self.measured_total_wh
        return (self.total_wh - measured) / abs(measured) if measured else None

    @property
    def kilometres(self) -> float:
        """Distance, from speed."""
        return float(self.trip.channels["speed_mps"].sum()) / 1000


def predict_trip(
    model: EnergyModel, trip: Trip, vehicle: str, *, offset_wh: float = 0.0
) -> TripPrediction:
    """Return the trip's windows, one ending each second, and what they add up to.

    `offset_wh` is added to each window (`remembered_wh`).
    """
    card = model.card
    model.refuse_unless_telemetry()
    if trip.seconds < card.window:
        raise DataError(
            f"Trip '{trip.name}' lasts {trip.seconds} s; the model needs at least {card.window} s."
        )
    trip = delayed(trip, card.lag_s)
    if card.elevation and "speed_mps" in trip.channels:
        trip = with_climb(trip, card.elevation["source"], model.field)
    for name in card.features:
        for channel in FEATURES[name].needs:
            if channel not in trip.channels:
                raise DataError(
                    f"Trip '{trip.name}' has no {channel}, which the model needs for its feature "
                    f"'{name}'. Add the channel, or use a model that was trained without it."
                )
    windows_wh, predicted_wh = _energies(model, trip, vehicle or card.vehicle)
    windows_wh = windows_wh + offset_wh
    predicted_wh = predicted_wh + offset_wh / card.window
    climb_known = None
    if card.elevation:
        ends = window_ends(trip.seconds, length=card.window)
        climb_known = known_windows(trip.channels[CLIMB_KNOWN], ends, length=card.window)
    bars = PredictionIntervals.of(card)
    share = unknown_share(climb_known, trip.seconds, card.window)
    speed_mps = trip.channels["speed_mps"]
    cold = trip_coldness(trip)
    low_wh, high_wh = bars.trip(np.cumsum(predicted_wh), share, speed_mps, cold)
    measured_wh = trip.channels.get("energy_wh")
    return TripPrediction(
        trip,
        windows_wh,
        predicted_wh,
        measured_wh,
        low_wh,
        high_wh,
        bars.usual.level,
        climb_known,
        cold,
        offset_wh,
    )


def _energies(model: EnergyModel, trip: Trip, vehicle: str) -> tuple[FloatArray, FloatArray]:
    """Return the energies of the trip's windows and of its seconds."""
    card = model.card
    window = model.card.window
    before, after = (
        np.repeat(_standing(trip, card.features, at), window, axis=0) for at in (0, -1)
    )
    series = np.concatenate([before, trip_features(trip, card.features, vehicle), after])
    ends = window + tile_ends(trip.seconds, window=window)
    # First and last the windows that stand all the time, for what a second of standing takes.
    window_ends_needed = np.concatenate([[window - 1], ends, [len(series) - 1]])
    found_wh = model.energies(series, window_ends_needed)
    idle_wh = float(found_wh[0]) / window, float(found_wh[-1]) / window
    seconds_wh = energy_by_second(found_wh[1:-1], trip.seconds, window=window, idle_wh=idle_wh)
    if card.balance:
        seconds_wh = seconds_wh + _balance_wh(card, series[window:-window]) / window
    return found_wh[window : trip.seconds + 1], seconds_wh


def _balance_wh(card: ModelCard, rows: FloatArray) -> float:
    """Return the trip balance of a window, Wh, from physical features [seconds, features]."""
    entry = card.balance
    scaled = (rows.mean(axis=0) - np.array(entry["feature_center"])) / entry["feature_scale"]
    shift = TripBalance.from_json(entry).shift(scaled[None])
    return float(shift[0]) * float(entry["label_scale_wh"])


def _standing(trip: Trip, features: tuple[str, ...], at: int) -> FloatArray:
    """Return features [1, features] of a standing second with the climate of second `at`."""
    second = at % trip.seconds
    now = {name: values[second : second + 1] for name, values in trip.channels.items()}
    still = {name: np.zeros(1) for name in ZERO_AT_REST if name in now}
    return feature_columns(now | still, features, begin=second)


def unknown_share(climb_known: BoolArray | None, seconds: int, window: int) -> FloatArray:
    """Return the share of the time since a trip began whose climb is unknown, [seconds].

    >>> unknown_share(np.array([True, False]), 3, window=2)
    array([0.  , 0.25, 0.5 ])
    """
    if climb_known is None:
        return np.zeros(seconds)
    total = np.concatenate([[0.0], np.cumsum(~climb_known)])
    second = np.arange(seconds)
    # Of each second the mean over the windows that cover it, counted by where they begin.
    first = np.maximum(second - window + 1, 0)
    last = np.minimum(second, len(climb_known) - 1)
    by_second = (total[last + 1] - total[first]) / (last - first + 1)
    return np.asarray(np.cumsum(by_second) / (second + 1))


def charge_over_time(
    prediction: TripPrediction, start: float | None = None, capacity_wh: float | None = None
) -> FloatArray | None:
    """Return the state of charge [seconds], 0 to 1, from a start and a capacity or as recorded; or
    None.
    """
    if start is not None and capacity_wh is not None:
        along = charge_along(np.cumsum(prediction.predicted_wh)[:, None], start, capacity_wh)
        return np.maximum(along[:, 0], 0.0)
    recorded = prediction.trip.channels.get("soc")
    return recorded if recorded is not None and np.isfinite(recorded).all() else None


@dataclass(frozen=True)
class RangeEstimate:
    """State of charge on arrival and range, for a planned trip.

    `arrival` is the state of charge on arrival with its interval `arrival_low` to `arrival_high`
    (below 0: the battery does not suffice). `range_km` is the range at the trip's consumption,
    `remaining_km` the range left on arrival; both are infinite for a trip without consumption.
    `short_wh` is the energy that is missing for the trip.
    """

    arrival: float
    arrival_low: float
    arrival_high: float
    range_km: float
    remaining_km: float
    short_wh: float

    @property
    def reaches(self) -> bool:
        """Return whether the plan ends before the charge does."""
        return self.arrival >= 0


def estimate_range(plan: TripPrediction, charge: float, capacity_wh: float) -> RangeEstimate:
    """Return the rest of a `charge` (0 to 1) of `capacity_wh` usable energy after the plan.

    The charge never rises above 1: what braking frees on a full pack is lost.
    """
    refuse_impossible_charge(charge)
    usable_wh(capacity_wh / 1000)
    energy_wh = plan.total_wh
    kilometres = plan.kilometres

    def after(spent_wh: FloatArray) -> float:
        return float(charge_along(spent_wh[:, None], charge, capacity_wh)[-1, 0])

    arrival = after(np.cumsum(plan.predicted_wh))
    wh_per_km = energy_wh / kilometres if kilometres > 0 else float("inf")
    reach_km = charge * capacity_wh / wh_per_km if wh_per_km > 0 else float("inf")
    return RangeEstimate(
        arrival=arrival,
        arrival_low=after(plan.high_wh),
        arrival_high=after(plan.low_wh),
        range_km=reach_km,
        remaining_km=max(reach_km - kilometres, 0.0),
        short_wh=max(-arrival, 0.0) * capacity_wh,
    )


def outcome(model: EnergyModel, trip: Trip, vehicle: str) -> CalibrationTrip:
    """Return predicted and measured energies of a recorded trip, for calibration and evaluation."""
    window = model.card.window
    prediction = predict_trip(model, trip, vehicle)
    ends = window_ends(trip.seconds, length=window)
    energy_wh = trip.channels["energy_wh"]
    return CalibrationTrip(
        windows_wh=prediction.windows_wh,
        measured_wh=window_sums(energy_wh, ends, length=window),
        speed_mps=window_means(trip.channels["speed_mps"], ends, length=window),
        trip_wh=prediction.total_wh,
        trip_measured_wh=float(energy_wh.sum()),
        seconds=trip.seconds,
        cold=prediction.cold,
    )


def past_trips(model: EnergyModel, trips: Iterable[Trip], scale_wh: float) -> list[PastTrip]:
    """Return recorded trips of the model's vehicle as its memory keeps them.

    Trips without energy or a channel that the model needs are left out.
    """
    past = []
    for trip in trips:
        if trip.seconds < model.card.window or "energy_wh" not in trip.channels:
            continue
        try:
            made = outcome(model, trip, model.card.vehicle)
        except DataError:
            continue
        residual_wh = made.measured_wh - made.windows_wh
        past.append(past_trip(trip, residual_wh, window=model.card.window, scale_wh=scale_wh))
    return past


def remembered_wh(model: EnergyModel, trip: Trip, vehicle: Vehicle | None) -> float:
    """Return the energy to add to each predicted window, Wh, from the vehicle's earlier trips.

    It counts as far as earlier trips gained by it, and is at most half the label scale.
    """
    card = model.card
    if vehicle is None or vehicle.name != card.vehicle or not card.memory_scale_wh:
        return 0.0
    earlier = earlier_trips(vehicle.trips, trip.start_time_s)
    past = past_trips(model, earlier, card.memory_scale_wh)
    return remembered_offset(past, trip.start_time_s, trip_coldness(trip)) * card.memory_scale_wh


Rows = list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Forecast:
    """A trip, the model that predicts it and the prediction.

    trip        as it was read, before the model adds its climb
    vehicle     name of the vehicle whose folder the trip is in; "" for a file
    prediction  energy by second
    reach       state of charge on arrival and range; None without one at departure
    soc         state of charge, 0 to 1, [seconds]; None where it is not known
    """

    trip: Trip
    vehicle: str
    card: ModelCard
    prediction: TripPrediction
    reach: RangeEstimate | None
    soc: FloatArray | None

    @property
    def title(self) -> str:
        """Name of the trip, and of its vehicle where that is known."""
        return f"Trip {self.trip.name}" + (f" of {self.vehicle}" if self.vehicle else "")

    def answer(self) -> str:
        """Return the prediction in one sentence: state of charge on arrival, or else the energy."""
        prediction = self.prediction
        reach = self.reach
        if reach is None:
            ends = prediction.interval_wh
            spread = f" ({spread_text(*ends, 'Wh')})" if ends else ""
            verb = "takes" if prediction.measured_wh is None else "is predicted to take"
            return f"The trip {verb} {prediction.total_wh:,.0f} Wh{spread}"
        if not reach.reaches:
            return f"The battery is empty after {reach.range_km:,.1f} km"
        if prediction.interval_wh is None:
            return f"You arrive with {100 * reach.arrival:.0f} %"
        return f"You arrive with {with_spread(100 * reach.arrival, *_arrival_ends(reach), '%')}"

    def rows(self) -> Rows:
        """Return the numbers of the trip: (name, value with its unit)."""
        return [*self._drive_rows(), *self._energy_rows(), *self._soc_rows()]

    def _drive_rows(self) -> Rows:
        prediction = self.prediction
        rows = [
            ("distance", f"{prediction.kilometres:.2f} km"),
            ("duration", f"{self.trip.seconds / 60:.1f} min"),
        ]
        if self.card.elevation:
            climb, descent = (prediction.trip.channels[name].sum() for name in CLIMB)
            rows.append(("climb, descent", f"{climb:.0f} m, {descent:.0f} m"))
        climb_known = prediction.climb_known
        if climb_known is not None:
            windows = f"{climb_known.sum():,} of {len(climb_known):,}"
            rows.append(("windows with known climb", windows))
        return rows

    def _energy_rows(self) -> Rows:
        prediction = self.prediction
        rows = [("predicted energy", f"{prediction.total_wh:,.0f} Wh")]
        if prediction.interval_wh is not None:
            low, high = prediction.interval_wh
            rows.append((_interval_name(prediction), spread_text(low, high, "Wh")))
        if prediction.measured_total_wh is not None:
            rows.append(("measured energy", f"{prediction.measured_total_wh:,.0f} Wh"))
        if prediction.relative_error is not None:
            error = f"{100 * prediction.relative_error:+.1f} %"
            rows.append(("error", error.replace("-", "−")))
        return rows

    def _soc_rows(self) -> Rows:
        reach = self.reach
        prediction = self.prediction
        if reach is None:
            return []
        rows = [("SoC on arrival", f"{100 * max(reach.arrival, 0):.1f} %")]
        if prediction.interval_wh is not None:
            ends = _arrival_ends(reach)
            rows.append((_interval_name(prediction), spread_text(*ends, "%", 1)))
        rows.append(("range at departure", f"{reach.range_km:,.0f} km"))
        rows.append(("range on arrival", f"{reach.remaining_km:,.0f} km"))
        return rows

    def remarks(self) -> list[str]:
        """Return remarks that a reader of the numbers needs, one sentence each."""
        card = self.card
        made = []
        role = card.role_of(self.trip.name, self.vehicle)
        if role and self.prediction.measured_wh is not None:
            made.append(
                f"{self.trip.name} is a {role} trip of {self.vehicle}: the model, its scaling or "
                "its prediction intervals were made with it, so its error is no test."
            )
        if self.vehicle:
            made += self._measurement_remarks()
        if self.prediction.interval_wh is None:
            made.append(
                "The model has no prediction interval: export it for a vehicle that has a trip for "
                "validation."
            )
        if self.reach is not None and not self.reach.reaches:
            missing = f"{self.reach.short_wh:,.0f} Wh are missing"
            made.append(f"The battery does not reach the end: {missing}.")
        if self.prediction.offset_wh:
            minute_wh = self.prediction.offset_wh * 60 / (card.window * card.interval_s)
            change = f"{minute_wh:+.1f} Wh per minute".replace("-", "−")
            made.append(f"Earlier trips of {self.vehicle} change the prediction by {change}.")
        if card.elevation and climb_from(self.trip, card.elevation["source"]) == "nothing":
            made.append("It has no positions, elevation or grade: its climb is unknown.")
        driven = card.about.get("trained_on", {}).get("coverage", {})
        low, high = driven.get("ambient_c", (-np.inf, np.inf))
        ambient_c = self.trip.channels.get("ambient_c", np.array(low)).mean()
        if ambient_c < low or ambient_c > high:
            made.append(
                f"It is {ambient_c:.0f} °C, and the model has learned from {low} to {high} °C: it "
                "extrapolates, and can be far off."
            )
        if self.vehicle and card.vehicle != self.vehicle:
            made.append(f"The model has the scaling of {card.vehicle}, not of {self.vehicle}.")
        return made

    def _measurement_remarks(self) -> list[str]:
        """Return what the measured energy is, where no energy was recorded."""
        if self.prediction.measured_wh is None:
            return [
                "The trip has no measured energy: its vehicle records neither energy nor a state "
                "of charge with a known capacity (pack_capacity_wh)."
            ]
        if "energy_wh" in self.trip.channels:
            return []
        return [
            "Measured energy is what the state of charge lost, times the capacity of the vehicle."
        ]


def _arrival_ends(reach: RangeEstimate) -> tuple[float, float]:
    """Return the ends of the interval of the state of charge on arrival, %."""
    return 100 * max(reach.arrival_low, 0), 100 * max(reach.arrival_high, 0)


def _interval_name(prediction: TripPrediction) -> str:
    return f"{100 * prediction.level:.0f} % interval"


def forecast(
    model: str | Path,
    trip: Path,
    *,
    soc: float | None = None,
    capacity_wh: float | None = None,
) -> Forecast:
    """Return the trip at `trip` (`reading.read_trip`) as a model file or pre-trained one has it.

    A state of charge at departure, 0 to 1, gives that on arrival and a range. It needs a usable
    capacity: the model's, unless one is given.
    """
    if soc is None and capacity_wh is not None:
        raise SettingError("A capacity needs a state of charge: give --soc, such as 62%.")
    energy_model = opened(str(model))
    if soc is not None and capacity_wh is None:
        capacity_wh = _stated_capacity_wh(energy_model)
    read, owner = read_trip(trip)
    vehicle = "" if owner is None else owner.name
    offset_wh = remembered_wh(energy_model, read, owner)
    measured = read if owner is None else with_measured_energy(read, owner.facts)
    prediction = predict_trip(energy_model, measured, vehicle, offset_wh=offset_wh)
    reach = None
    if soc is not None and capacity_wh is not None:
        reach = estimate_range(prediction, soc, capacity_wh)
    along = charge_over_time(prediction, soc, capacity_wh)
    return Forecast(read, vehicle, energy_model.card, prediction, reach, along)


def _stated_capacity_wh(model: EnergyModel) -> float:
    """Return the usable capacity that the file's route model states for its vehicle."""
    routes = model.routes()
    if routes is None or not routes.capacity_wh:
        raise SettingError(
            f"A state of charge needs a capacity, and {model.path} does not know its "
            "vehicle's: give --capacity in kWh."
        )
    return routes.capacity_wh
