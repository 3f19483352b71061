"""Targets of a window: name, unit, inputs, and the labels of a trip's windows.

    energy            energy that leaves the pack in the window, Wh (paper `eq:window_label_sf`)
    soc               charge that the window takes, in percentage points of state of charge
    energy-from-soc   the same charge as energy, Wh, by the vehicle's capacity
    energy-per-km     energy of the window over its distance, Wh/km
    next              energy of the window that follows, Wh: a forecast

A target's function gets the channels and facts that it names and nothing else, like a feature. The
channels that make the label are refused as inputs of features (`refuse_leaks`).

A forecast labels seconds after its window. Features look up to `STREAMING_DELAY_S` ahead, so its
horizon begins that much after the window's last second: its features are those that a stream has at
that moment and contain nothing of the seconds to predict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from fedwatt.errors import DataError, SettingError, check, unknown
from fedwatt.plugins import refers, resolve
from fedwatt.telemetry.channels import STORED
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows.features import FEATURES, STREAMING_DELAY_S, refuse_gaps
from fedwatt.windows.splits import window_ends, window_sums

Values = Mapping[str, FloatArray]
"""Channel -> its values [seconds]; fact of the vehicle -> one number, []."""
Label = Callable[[Values, IntArray, int], FloatArray]
"""(values, last second of each span [W], seconds in a span) -> label of each span, [W]."""

LEAST_M = 100.0
"""A window that covers less has no energy per kilometre."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A quantity that a window predicts.

    name, unit     as reports show them
    meaning        completes "a window's ..."; `described` adds the horizon to it
    made_of        channels that make the label; no feature may need one of them
    label          labels of spans of one trip; NaN: the span has none and its window is left out
    reads          other channels that the label is computed with and that features may see
    facts          numbers known of the vehicle (`Vehicle.facts`) that the label needs
    adds           how windows side by side add up to a trip: their "sum", or their "mean"
    typical        size of an ordinary label; errors in per cent count labels far below it apart
    stepped        the label is read off a channel that moves in steps, so it is coarse
    horizon        None: the label is of the window's own seconds. Otherwise that many seconds after
                   it; 0: as many as the window has
    """

    name: str
    unit: str
    meaning: str
    made_of: tuple[str, ...]
    label: Label
    reads: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    adds: Literal["sum", "mean"] = "sum"
    typical: float = 100.0
    stepped: bool = False
    horizon: int | None = None

    def __post_init__(self) -> None:
        check(self, "made_of", bool(self.made_of), "one or more channels")
        for channel in (*self.made_of, *self.reads):
            if channel not in STORED:
                raise SettingError(f"Target '{self.name}': {unknown('channel', channel, STORED)}")
        check(self, "adds", self.adds in ("sum", "mean"), "'sum' or 'mean'")
        check(self, "typical", self.typical > 0, "above 0")
        check(self, "horizon", self.horizon is None or self.horizon >= 0, "at least 0 seconds")

    @property
    def described(self) -> str:
        """Description of the target and the seconds it covers.

        >>> get_target("next").described
        'energy that leaves the pack, of the window that follows it'
        >>> replace(get_target("next"), horizon=90).described
        'energy that leaves the pack, of the 90 s that follow it'
        """
        if self.horizon is None:
            return self.meaning
        span = f"{self.horizon} s that follow" if self.horizon else "window that follows"
        return f"{self.meaning}, of the {span} it"

    def ahead(self, window: int) -> int:
        """Return the seconds after a window that its label covers."""
        return 0 if self.horizon is None else STREAMING_DELAY_S + (self.horizon or window)

    def windows(
        self, trip: Trip, facts: Mapping[str, Any], vehicle: str, *, length: int, stride: int = 1
    ) -> tuple[IntArray, FloatArray]:
        """Return the last second of each labelled window of a trip, and the labels; both [W]."""
        values = self._values(trip, facts, vehicle)
        ahead = self.ahead(length)
        ends = window_ends(trip.seconds - ahead, length=length, stride=stride)
        span = length if self.horizon is None else self.horizon or length
        labels = np.asarray(self.label(values, ends + ahead, span), np.float64)
        if labels.shape != ends.shape:
            raise SettingError(
                f"Target '{self.name}' gave labels of shape {labels.shape} for {len(ends)} "
                "windows. Its function must return one number a window."
            )
        labelled = ~np.isnan(labels)
        return ends[labelled], labels[labelled]

    def grain(self, trips: Sequence[Trip], facts: Mapping[str, Any], vehicle: str) -> float:
        """Return the median step in which the label's channels move, in its unit; 0: fine.

        A label is the difference of two such readings, each of which lags by up to a step.
        """
        if not (self.stepped and trips):
            return 0.0
        moves = []
        for trip in trips:
            values = self._values(trip, facts, vehicle)
            moves.append(np.abs(self.label(values, np.arange(1, trip.seconds), 1)))
        steps = np.concatenate(moves)
        steps = steps[steps > 0]
        return float(np.median(steps)) if len(steps) else 0.0

    def _values(self, trip: Trip, facts: Mapping[str, Any], vehicle: str) -> dict[str, FloatArray]:
        """Return the inputs of `label`; refuse a trip or vehicle that lacks some of them."""
        values = {}
        for channel in (*self.made_of, *self.reads):
            if channel not in trip.channels:
                raise DataError(
                    f"Vehicle '{vehicle}', trip '{trip.name}' has no channel '{channel}', of which "
                    f"the target '{self.name}' is made. {_advice(trip)}"
                )
            refuse_gaps(trip, channel, vehicle)
            values[channel] = trip.channels[channel]
        for fact in self.facts:
            number = facts.get(fact)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise DataError(
                    f"Vehicle '{vehicle}' has no number '{fact}' among its facts, which the target "
                    f"'{self.name}' needs. Write it below [facts] of the mapping and import again."
                )
            values[fact] = np.array(float(number))
        return values


def _advice(trip: Trip) -> str:
    if "energy_wh" in trip.channels:
        return "Its energy is recorded: data.target = energy."
    if "soc" in trip.channels:
        return "Its state of charge is recorded: data.target = soc."
    return "Leave the trip out, or choose another data.target."


def _energy(values: Values, ends: IntArray, length: int) -> FloatArray:
    return window_sums(values["energy_wh"], ends, length=length)


def _depletion(values: Values, ends: IntArray, length: int) -> FloatArray:
    """Return the percentage points of charge lost from the second before a span to its end.

    In a span that begins with its trip the first second is missing.
    """
    points = 100 * values["soc"]
    return points[np.maximum(ends - length, 0)] - points[ends]


def _energy_from_soc(values: Values, ends: IntArray, length: int) -> FloatArray:
    return _depletion(values, ends, length) / 100 * values["pack_capacity_wh"]


def _energy_per_km(values: Values, ends: IntArray, length: int) -> FloatArray:
    metres = window_sums(values["speed_mps"], ends, length=length)
    metres = np.where(metres >= LEAST_M, metres, np.nan)
    return 1000 * _energy(values, ends, length) / metres


ENERGY = Target(
    name="energy",
    unit="Wh",
    meaning="energy that leaves the pack",
    made_of=("energy_wh",),
    label=_energy,
)
SOC = Target(
    name="soc",
    unit="points",
    meaning="charge depletion, in percentage points of state of charge",
    made_of=("soc",),
    label=_depletion,
    typical=1.0,
    stepped=True,
)

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        ENERGY,
        SOC,
        Target(
            name="energy-from-soc",
            unit="Wh",
            meaning="energy, from the state of charge and the pack's capacity",
            made_of=("soc",),
            label=_energy_from_soc,
            facts=("pack_capacity_wh",),
            stepped=True,
        ),
        Target(
            name="energy-per-km",
            unit="Wh/km",
            meaning="energy that leaves the pack per kilometre",
            made_of=("energy_wh",),
            label=_energy_per_km,
            reads=("speed_mps",),
            adds="mean",
        ),
        replace(ENERGY, name="next", horizon=0),
    )
}
"""Targets by the name that the setting `data.target` has."""


TRIP_TARGETS: Final = ("energy", "energy-from-soc")
"""Targets whose windows add up to the energy of a trip."""


def with_measured_energy(trip: Trip, facts: Mapping[str, Any]) -> Trip:
    """Return the trip with `energy_wh`, from its state of charge where energy is not recorded.

    A trip without either, or of a vehicle of unknown capacity, is returned as it is.
    """
    soc = trip.channels.get("soc")
    capacity_wh = facts.get("pack_capacity_wh")
    if "energy_wh" in trip.channels or soc is None or not capacity_wh or np.isnan(soc).any():
        return trip
    energy_wh = -np.diff(soc, prepend=soc[0]) * float(capacity_wh)
    return replace(trip, channels={**trip.channels, "energy_wh": energy_wh})


def get_target(name: str) -> Target:
    """Return the target of a name, or of a reference such as './file.py:name'.

    >>> get_target("soc").unit
    'points'
    """
    if name in TARGETS:
        return TARGETS[name]
    if not refers(name, "target"):
        raise SettingError(unknown("target", name, TARGETS))
    expected = "a Target, as fedwatt.windows.targets has them"
    target: Target = resolve(
        name, "target", expected, lambda value: isinstance(value, Target)
    ).value
    return target


def refuse_leaks(target: Target, features: Sequence[str]) -> None:
    """Refuse a feature that sees a channel which makes the target."""
    for name in features:
        for channel in FEATURES[name].needs:
            if channel in target.made_of:
                raise SettingError(
                    f"Feature '{name}' needs '{channel}', which makes the target '{target.name}': "
                    "a model would see its own label. Leave the feature out."
                )
