"""Window energy each second from telemetry as it comes: numpy and onnxruntime, constant memory.

Seconds come from `clock` and features from `fedwatt.windows.features`, the training pipeline's own.
A prediction comes a few seconds after the second it is about: acceleration looks two seconds ahead,
and a speed that stands is believed after one usual hold. With elevation a model waits 4 seconds, in
which a leap of the position may show, and the usual hold of a position. Climb is read anew from the
last ten minutes each second, so in a gap that is not over yet it is not known for now, and is put
right in the windows that still hold it once it is.

Where the pack's energy is measured and given to `step`, predictions also learn from the trip under
way (`fedwatt.journeys.filter`), and `rest_of_trip` corrects what was predicted of the way ahead.
Where the model's card allows it, trips that are over then move the predictions of the next
(`fedwatt.journeys.memory`): `past_trips` are theirs, to be given to the next predictor.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.edge.calibration import PredictionIntervals
from fedwatt.edge.clock import SecondClock, Timing
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.elevation.climb import LOOK_AHEAD_S, SOURCES, with_climb
from fedwatt.elevation.climb import MEMORY_S as GROUND_MEMORY_S
from fedwatt.errors import DataError
from fedwatt.files import parse_json
from fedwatt.journeys.filter import Correction, TripFilter, TripPrior, coldness
from fedwatt.journeys.memory import PastTrip, TripMemory
from fedwatt.telemetry.cleaning.resample import GRADE_SMOOTHING_S, centred_mean
from fedwatt.telemetry.trip import FloatArray, Trip
from fedwatt.windows.features import (
    CLIMB,
    CLIMB_KNOWN,
    FEATURES,
    MAY_BE_UNKNOWN,
    MEMORY_S,
    STREAMING_DELAY_S,
    feature_columns,
)
from fedwatt.windows.splits import known_windows
from fedwatt.windows.time_offset import MOTION, delayed_by

# As after an import: climate devices that never report are unknown.
UNKNOWN_UNTIL_READ = dict.fromkeys(MAY_BE_UNKNOWN, math.nan)
FORMAT = 2


@dataclass(frozen=True)
class Prediction:
    """Energy of the window that ends `second` seconds into its trip.

    `time_s` is that moment by the clock of the samples. `low_wh` and `high_wh` are NaN where the
    model carries no prediction intervals. `climb_known` is None for a model without elevation.
    `in_trip` is the prediction corrected by what the trip had
    shown before the window began, with its interval; None where no energy was given.
    """

    second: int
    time_s: float
    energy_wh: float
    low_wh: float
    high_wh: float
    climb_known: bool | None = None
    in_trip: tuple[float, float, float] | None = None
    """Energy, lower and upper end, Wh."""


class EnergyPredictor:
    """Takes one sample at a time and returns the predictions that it completes."""

    def __init__(
        self,
        model: EnergyModel | str | Path,
        *,
        timing: Timing | None = None,
        assumed: Mapping[str, float] = UNKNOWN_UNTIL_READ,
        past_trips: Iterable[PastTrip] = (),
    ) -> None:
        """Open a model with its vehicle's scaling.

        `past_trips` are the vehicle's earlier trips, by the clock of the samples. `assumed` stands
        in for channels as long as the trip has no reading of them; without one in it, a channel has
        to be read before there are predictions.
        """
        self.model = model if isinstance(model, EnergyModel) else EnergyModel(model)
        card = self.model.card
        self.model.refuse_unless_telemetry()
        needs = [channel for name in card.features for channel in FEATURES[name].needs]
        from_ground = (*CLIMB, CLIMB_KNOWN) if card.elevation else ()
        essential = [name for name in needs if name not in from_ground]
        ground = SOURCES[card.elevation["source"]] if card.elevation else ()
        self.channels = tuple(dict.fromkeys(("speed_mps", *essential, *ground)))
        self._assumed = np.array([assumed.get(name, math.nan) for name in self.channels])
        # Without a position climb is not known, as in training.
        self._essential = tuple(
            name for name in self.channels if name not in assumed and name not in ground
        )
        self._bars = PredictionIntervals.of(card)
        self._clock = SecondClock(self.channels, timing or Timing())
        self._delay_s = LOOK_AHEAD_S if card.elevation else STREAMING_DELAY_S
        # What the features of one window can depend on.
        self._enough = card.window + MEMORY_S + self._delay_s + math.ceil(card.lag_s)
        self._capacity = max(self._enough, GROUND_MEMORY_S if card.elevation else 0)
        self._prior = TripPrior(**card.trip_prior) if card.trip_prior else None
        usable = [trip for trip in past_trips if trip.usable]
        self._memory = TripMemory(card.memory_scale_wh, usable) if card.memory_scale_wh else None
        self._begin()

    @property
    def counts(self) -> Counter[str]:
        """Counts of samples or readings that were late, repeated, implausible and so on."""
        return self._clock.counts

    @property
    def past_trips(self) -> list[PastTrip]:
        """Trips that are over, for the next predictor; none where the card allows no memory."""
        return [] if self._memory is None else [*self._memory.past]

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Channels that must be read before there can be predictions."""
        return tuple(name for name in self._essential if name not in self._clock.first)

    def push(self, time_s: float, sample: Mapping[str, float]) -> list[Prediction]:
        """Take a sample: its time by the vehicle's clock and readings by channel name.

        Accepts every reading of a sensor; `counts` has the readings that were not used.
        """
        if not math.isfinite(time_s):
            self.counts["no time"] += 1
            return []
        readings = self._clock.believed(sample)
        done: list[Prediction] = []
        if self._clock.breaks(time_s, readings):
            self.counts["trips cut"] += 1
            done = self.finish()
        self._clock.add(time_s, readings)
        return done + self._advance(self._clock.take(self._clock.ready()))

    def step(
        self,
        sample: Mapping[str, float],
        *,
        energy_wh: float | None = None,
        time_s: float | None = None,
    ) -> list[Prediction]:
        """Take a sample and the energy that left the pack since the one before, if it is known.

        `time_s` is the sample's time (None: a second after the last one). Energy that is missing,
        or no number, is unknown: windows with such seconds correct no later prediction.
        """
        if time_s is None:
            last_s = self._meter.last_s
            time_s = 0.0 if math.isnan(last_s) else last_s + self.model.card.interval_s
        done = self.push(time_s, sample)
        self._meter.add(time_s, energy_wh)
        return [self._learned(prediction) for prediction in done]

    def rest_of_trip(self, predicted_wh: float, seconds: float) -> Correction | None:
        """Return the correction of energy predicted for the next `seconds`; None without readings.

        Its standard deviation is that of the corrected energy.
        """
        return None if self._filter is None else self._filter.remainder(predicted_wh, seconds)

    def _learned(self, prediction: Prediction) -> Prediction:
        """Return the prediction corrected by the trip so far, which it then becomes a part of."""
        if not self._meter.begun:
            return prediction
        measured_wh = self._measured_wh(prediction)
        if self._memory is not None:
            self._memory.observe(measured_wh - prediction.energy_wh)
        if self._filter is None or self._prior is None:
            return prediction
        speed_mps = self._mean_speed(prediction.second)
        self._filter.begin(self._ambient_c())
        expected = self._filter.expected(
            prediction.second, prediction.energy_wh, speed_mps=speed_mps
        )
        half_wh = self._prior.factor * expected.deviation_wh
        energy_wh = prediction.energy_wh + expected.wh
        self._filter.observe(
            prediction.second, prediction.energy_wh, measured_wh, speed_mps=speed_mps
        )
        return replace(prediction, in_trip=(energy_wh, energy_wh - half_wh, energy_wh + half_wh))

    def _measured_wh(self, prediction: Prediction) -> float:
        """Return the measured energy of a prediction's window; NaN where it is not known."""
        window_s = self.model.card.window * self.model.card.interval_s
        measured_wh = self._meter.between(prediction.time_s - window_s, prediction.time_s)
        stood = bool((self._speeds(prediction.second) == 0).all())
        # Energy that flows in while the wheels stand is a charger's.
        return math.nan if measured_wh < 0 and stood else measured_wh

    def _speeds(self, second: int) -> FloatArray:
        """Return the speeds in the window that ends at `second`."""
        speed = self._recent[:, self.channels.index("speed_mps")]
        last = len(speed) - (self._seconds_seen - second)
        return speed[max(last - self.model.card.window, 0) : max(last, 0)]

    def _mean_speed(self, second: int) -> float:
        """Return the mean speed in the window that ends at `second`; 0 if it is not known."""
        speed = self._speeds(second)
        return float(np.nanmean(speed)) if np.isfinite(speed).any() else 0.0

    def _ambient_c(self) -> float:
        """Return the outside temperature of the last minutes; NaN if it is not known."""
        if "ambient_c" not in self.channels:
            return math.nan
        values = self._recent[:, self.channels.index("ambient_c")]
        return float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan

    def finish(self) -> list[Prediction]:
        """End the trip: return the remaining predictions and reset the state."""
        done = self._advance(self._clock.finish()) + self._predictions(self._seconds_seen)
        if self._memory is not None:
            begin_s = self._clock.origin_s
            end_s = begin_s + self._seconds_seen
            windows = self._seconds_seen / self.model.card.window
            self._memory.end_trip(begin_s, end_s, coldness(self._ambient_c()), windows)
        self._begin()
        return done

    def _begin(self) -> None:
        self._clock.begin()
        self._recent = np.empty((0, len(self.channels)))
        self._seconds_seen = 0
        self._predicted = self.model.card.window - 1
        self._meter = EnergyMeter(float(self._enough))
        self._filter = self._new_filter()

    def _new_filter(self) -> TripFilter | None:
        return None if self._prior is None else TripFilter(self._prior, self.model.card.window)

    def _advance(self, rows: FloatArray) -> list[Prediction]:
        """Keep the seconds `rows` [seconds, channels], and predict what each of them completes."""
        done: list[Prediction] = []
        for row in rows:
            self._recent = np.concatenate((self._recent[-self._capacity + 1 :], row[None]))
            self._seconds_seen += 1
            done += self._predictions(self._seconds_seen - self._delay_s)
        return done

    def _predictions(self, seconds: int) -> list[Prediction]:
        """Return new predictions of windows that end within the first `seconds`."""
        made = list(range(self._predicted + 1, seconds + 1))
        self._predicted = max(self._predicted, seconds)
        if not made or self.waiting_for:
            return []
        card = self.model.card
        channels = self._channels()
        begin = self._seconds_seen - len(channels["speed_mps"])
        features = feature_columns(channels, card.features, begin=begin)
        # More than one only at the end of a trip.
        ends = np.array(made) - begin - 1
        windows = features[ends[:, None] + np.arange(1 - card.window, 1)]
        climb_known = None
        if card.elevation:
            climb_known = known_windows(channels[CLIMB_KNOWN], ends, length=card.window)
        energy_wh = self.model.energy(windows)
        cold = coldness(self._ambient_c())
        if self._memory is not None:
            energy_wh = energy_wh + self._memory.offset(self._clock.origin_s, cold)
        low_wh, high_wh = self._bars.windows(energy_wh, windows, climb_known, cold)
        columns = [values.tolist() for values in (energy_wh, low_wh, high_wh)]
        columns.append([None] * len(made) if climb_known is None else climb_known.tolist())
        return [
            Prediction(second, self._clock.origin_s + second, *values)
            for second, *values in zip(made, *columns, strict=True)
        ]

    def _channels(self) -> dict[str, FloatArray]:
        """Return the channels from which the features of the due windows are made, [seconds]
        each.
        """
        channels: dict[str, FloatArray] = {}
        for column, name in enumerate(self.channels):
            stands_in = self._clock.first.get(name, self._assumed[column])
            values = self._recent[:, column]
            channels[name] = np.where(np.isnan(values), stands_in, values)
        lag_s = self.model.card.lag_s
        if lag_s:
            channels |= {
                name: delayed_by(values, lag_s)
                for name, values in channels.items()
                if name in MOTION
            }
        if "grade" in channels:
            width = round(GRADE_SMOOTHING_S / self.model.card.interval_s)
            channels["grade"] = centred_mean(channels["grade"], width)
        if self.model.card.elevation:
            source = self.model.card.elevation["source"]
            channels = dict(with_climb(Trip("", channels), source, self.model.field).channels)
        return {name: values[-self._enough :] for name, values in channels.items()}

    def snapshot(self) -> str:
        """Return the state between two samples as JSON."""
        names = ("done", "behind", "readings", "first", "counts")
        clock_state = {name: getattr(self._clock, name) for name in names}
        state = {
            "format": FORMAT,
            "model": self.model.card.to_json(),
            "timing": asdict(self._clock.timing),
            "clock": {"origin_s": _plain(self._clock.origin_s), **clock_state},
            "recent": [[_plain(value) for value in row] for row in self._recent.tolist()],
            "seconds_seen": self._seconds_seen,
            "predicted": self._predicted,
            "meter": self._meter.to_json(),
            "filter": {} if self._filter is None else self._filter.to_json(),
            "memory": {} if self._memory is None else asdict(self._memory),
        }
        return json.dumps(state, allow_nan=False)

    def restore(self, text: str) -> None:
        """Continue from a snapshot of a predictor of the same model and timing."""
        try:
            state: dict[str, Any] = parse_json(text)
            expected = (FORMAT, self.model.card.to_json(), asdict(self._clock.timing))
            if (state["format"], state["model"], state["timing"]) != expected:
                raise DataError(
                    "The snapshot is of another model or of other timing. Start the trip anew, or "
                    "restore it into a predictor like the one that made it."
                )
            clock_state = state["clock"]
            clock = replace(
                self._clock,
                origin_s=math.nan
                if clock_state["origin_s"] is None
                else float(clock_state["origin_s"]),
                done=int(clock_state["done"]),
                behind=int(clock_state["behind"]),
                readings={
                    name: (list(t), list(v)) for name, (t, v) in clock_state["readings"].items()
                },
                first=dict(clock_state["first"]),
                counts=Counter(clock_state["counts"]),
            )
            # None becomes NaN.
            recent = np.array(state["recent"], np.float64).reshape(-1, len(self.channels))
            counters = int(state["seconds_seen"]), int(state["predicted"])
            meter = EnergyMeter.from_json(state["meter"])
            filter = self._new_filter()
            if filter is not None:
                filter.restore(state["filter"])
            memory = None
            if self._memory is not None:
                memory = TripMemory.from_json(state["memory"])
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            if isinstance(problem, DataError):
                raise
            raise DataError(
                f"The snapshot is damaged: {problem!r}. Start the trip anew."
            ) from problem
        self._clock = clock
        self._recent = recent
        self._meter = meter
        self._filter = filter
        self._memory = memory
        self._seconds_seen, self._predicted = counters


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


LONGEST_S = 10.0
"""Samples farther apart say nothing about the time between."""


@dataclass
class EnergyMeter:
    """The energy of the latest `memory_s`, sample by sample.

    parts   begin, end and energy of the time between two samples, Wh; None where it is not known
    last_s  time of the last sample
    begun   whether any energy was given
    """

    memory_s: float
    parts: list[tuple[float, float, float | None]] = field(default_factory=list)
    last_s: float = math.nan
    begun: bool = False

    def add(self, time_s: float, energy_wh: float | None) -> None:
        """Add a sample; ignore one that is not later than the last one."""
        if not math.isfinite(time_s) or time_s <= self.last_s:
            return
        if not math.isnan(self.last_s):
            if time_s - self.last_s > LONGEST_S or not math.isfinite(energy_wh or 0.0):
                energy_wh = None
            self.begun |= energy_wh is not None
            self.parts.append((self.last_s, time_s, energy_wh))
        self.last_s = time_s
        # In large pieces: taking the first of a list away moves all others.
        if self.parts and time_s - self.parts[0][0] > 2 * self.memory_s:
            self.parts = [part for part in self.parts if part[1] > time_s - self.memory_s]

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the energy from one time to another, Wh; NaN where some of it is not known.

        >>> meter = EnergyMeter(60.0)
        >>> for time_s, energy_wh in ((0, None), (1, 2.0), (3, 6.0), (4, None)):
        ...     meter.add(time_s, energy_wh)
        >>> meter.between(0.5, 2.0), meter.between(2.0, 4.0)
        (4.0, nan)
        """
        if not self.parts or begin_s < self.parts[0][0] or end_s > self.last_s:
            return math.nan
        total_wh = 0.0
        for part_begin_s, part_end_s, energy_wh in self.parts:
            shared_s = min(part_end_s, end_s) - max(part_begin_s, begin_s)
            if shared_s > 0:
                if energy_wh is None:
                    return math.nan
                total_wh += energy_wh * shared_s / (part_end_s - part_begin_s)
        return total_wh

    def to_json(self) -> dict[str, Any]:
        """Return everything that the meter knows, as plain values."""
        return asdict(self) | {"last_s": _plain(self.last_s)}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> "EnergyMeter":
        """Return the meter that `to_json` described."""
        last_s = math.nan if entry["last_s"] is None else float(entry["last_s"])
        parts = [(begin_s, end_s, energy_wh) for begin_s, end_s, energy_wh in entry["parts"]]
        return EnergyMeter(**{**entry, "last_s": last_s, "parts": parts})
