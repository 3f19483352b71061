"""A vehicle as the federation sees it: one scaled series and the index of its windows.

Windows are never materialised: `Client.series` is `[seconds, features]`, and a window is the row
of its last second. Memory is O(seconds), whatever the window length. A client is built from its own
vehicle alone, so a vehicle on the road builds the very same bytes as a simulation does.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fedwatt.data.features import FEATURES, feature_names, needs_climb, refuse_gaps, trip_features
from fedwatt.data.paged import Mapped, gather_clients
from fedwatt.data.reduction import principal_mix, selection_mix
from fedwatt.data.scaling import SCALINGS, Scaler, about_zero
from fedwatt.data.split import SPLITS, held_out_vehicles, split_trips
from fedwatt.data.strata import STRATA
from fedwatt.data.trip import BoolArray, FloatArray, IntArray, Trip, Vehicle
from fedwatt.data.windows import known_windows, window_ends, window_energy, window_means
from fedwatt.errors import DataError, check

LABEL_SCALINGS = ("vehicle", "fleet")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How telemetry becomes windows.

    `features` is a feature set ("base", "physics", "terrain"), single features, or several of them
    separated by commas. `window` and the strides are in samples: `stride` between training windows,
    `evaluation_stride` between validation and test windows. With `label_scaling` "vehicle" a label
    is centred and scaled like a feature, from training windows; with "fleet" it is energy divided
    by `label_scale_wh`. `split` are the shares of training, validation and test trips; `held_out`
    is the number of vehicles that never train. A vehicle may replace its features by its own
    `components` principal ones, or silence all but its own `selected` best (0 leaves them alone).
    """

    features: str = "base"
    window: int = 60
    stride: int = 1
    evaluation_stride: int = 10
    scaling: str = "zscore"
    label_scaling: str = "vehicle"
    label_scale_wh: float = 100.0
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)
    split_seed: int = 0
    held_out: int = 0
    components: int = 0
    selected: int = 0

    def __post_init__(self) -> None:
        most = len(feature_names(self.features))
        for name in ("components", "selected"):
            allowed = f"from 0 (off) to the {most} features of '{self.features}'"
            check(self, name, 0 <= getattr(self, name) <= most, allowed)
        alone = not (self.components and self.selected)
        check(self, "selected", alone, "0 when components is not. Use one of them")
        for name in ("window", "stride", "evaluation_stride"):
            check(self, name, getattr(self, name) >= 1, "at least 1 sample")
        for name, known in (("scaling", SCALINGS), ("label_scaling", LABEL_SCALINGS)):
            check(self, name, getattr(self, name) in known, f"one of {', '.join(known)}")
        positive = math.isfinite(self.label_scale_wh) and self.label_scale_wh > 0
        check(self, "label_scale_wh", positive, "a positive number of Wh")
        object.__setattr__(self, "split", tuple(self.split))
        shares = len(self.split) == 3 and all(share > 0 for share in self.split)
        allowed = "three positive shares that add up to 1, such as (0.7, 0.1, 0.2)"
        check(self, "split", shares and math.isclose(sum(self.split), 1, abs_tol=1e-9), allowed)
        check(self, "held_out", self.held_out >= 0, "at least 0 vehicles")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a client's series."""
        if self.components:
            return tuple(f"component {number + 1}" for number in range(self.components))
        return feature_names(self.features)


@dataclass(frozen=True, eq=False)
class Client:
    """One vehicle's windows. Nothing in it comes from another vehicle.

    name, kind     of the vehicle
    features       names of the columns of `series`
    window         samples in a window
    series         float32 [seconds, features]: scaled, trips one after the other
    ends           split -> int64 [windows]: row of `series` where each window ends
    labels         split -> float32 [windows]: scaled energy of each window, in the order of `ends`
    label_*_wh     energy in Wh is label * label_scale_wh + label_center_wh
    strata         "speed", "temperature" -> class names and int8 [test windows]
    trips          split -> names of its trips
    known          "validation", "test" -> bool [windows]: whether their climb was read; empty where
                   no feature needs climb
    held_out       the vehicle is evaluated but never trains
    simulated      its energy is simulated, not measured
    scaler         how `series` was scaled; None for a series made by hand
    """

    name: str
    features: tuple[str, ...]
    window: int
    series: NDArray[np.float32]
    ends: Mapping[str, IntArray]
    labels: Mapping[str, NDArray[np.float32]]
    label_center_wh: float
    label_scale_wh: float
    strata: Mapping[str, tuple[tuple[str, ...], NDArray[np.int8]]]
    trips: Mapping[str, tuple[str, ...]]
    known: Mapping[str, BoolArray] = field(default_factory=dict)
    held_out: bool = False
    kind: str = "passenger"
    simulated: bool = True
    scaler: Scaler | None = None

    def energy_wh(self, labels: NDArray[np.floating]) -> FloatArray:
        """Energy in Wh, float64, of scaled labels or predictions of any shape."""
        return np.asarray(labels, float) * self.label_scale_wh + self.label_center_wh


@dataclass(frozen=True, eq=False)
class Fleet:
    """Clients in ascending natural order of their names, and how they were made."""

    clients: tuple[Client, ...]
    settings: DataSettings
    source: str
    mapped: Mapped | None = None
    """The files that the clients' arrays are in, where they are too much for memory."""

    def __repr__(self) -> str:
        """Where it comes from and how large it is, not its arrays."""
        size = f"{len(self.clients)} vehicles, {self.windows('train'):,} training windows"
        return f"Fleet({self.source!r}, {size})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all vehicles, held-out ones included."""
        return tuple(client.name for client in self.clients)

    @property
    def window(self) -> int:
        """Samples in a window."""
        return self.settings.window

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of every client's series."""
        return self.settings.columns

    def windows(self, split: str) -> int:
        """Number of windows of a split; held-out vehicles have no part in training."""
        taking_part = (c for c in self.clients if split != "train" or not c.held_out)
        return sum(len(client.ends[split]) for client in taking_part)

    def split_hash(self) -> str:
        """Hex digest of which trips of which vehicles are in which split."""
        digest = blake2b(digest_size=16)
        for client in self.clients:
            trips = {split: client.trips[split] for split in SPLITS}
            digest.update(json.dumps([client.name, client.held_out, trips]).encode())
        return digest.hexdigest()

    def data_hash(self) -> str:
        """Hex digest of everything a model is trained and judged on."""
        return self._data_hash

    @cached_property
    def _data_hash(self) -> str:
        digest = blake2b(digest_size=16)
        for client in self.clients:
            about = [client.name, client.features, client.window, client.series.shape]
            about += [client.held_out, client.label_center_wh, client.label_scale_wh]
            digest.update(json.dumps(about).encode())
            digest.update(client.series.tobytes())
            for split in SPLITS:
                digest.update(client.ends[split].tobytes())
                digest.update(client.labels[split].tobytes())
            for split, known in sorted(client.known.items()):
                digest.update(split.encode() + known.tobytes())
            if self.mapped is not None:
                self.mapped.release()
        return digest.hexdigest()


def split_of_trips(vehicle: Vehicle, settings: DataSettings) -> dict[str, str]:
    """Split of every trip by its name; trips that hold no window are in none."""
    usable = [trip for trip in vehicle.trips if trip.seconds >= settings.window]
    recordings = {trip.name: trip.recording for trip in usable}
    long_enough = len(set(recordings.values()))
    if long_enough < len(SPLITS):
        recorded = len({trip.recording for trip in vehicle.trips})
        raise DataError(
            f"Vehicle '{vehicle.name}' has {recorded} trips, {long_enough} of them at least "
            f"{settings.window} s long; training, validation and test need one each (the parts of "
            "a trip that was cut at gaps count as one). Give it more or longer trips, choose a "
            "shorter window, or leave the vehicle out."
        )
    trips = split_trips(vehicle.name, recordings, settings.split, settings.split_seed)
    return {trip: split for split in SPLITS for trip in trips[split]}


def build_client(vehicle: Vehicle, settings: DataSettings) -> Client:
    """Features, splits, windows and labels of one vehicle.

    Trips shorter than the window hold no window and are left out.
    """
    vehicle.refuse_unless_trainable()
    names = feature_names(settings.features)
    usable = [trip for trip in vehicle.trips if trip.seconds >= settings.window]
    split_of = split_of_trips(vehicle, settings)
    columns = [trip_features(trip, names, vehicle.name) for trip in usable]
    for trip in usable:
        refuse_gaps(trip, "energy_wh", vehicle.name)

    of_trips = zip(columns, usable, strict=True)
    training = [rows for rows, trip in of_trips if split_of[trip.name] == "train"]
    scaler = _scaler(np.concatenate(training), names, settings)
    starts = np.cumsum([0, *(trip.seconds for trip in usable)])
    ends: dict[str, list[IntArray]] = {split: [] for split in SPLITS}
    energy: dict[str, list[FloatArray]] = {split: [] for split in SPLITS}
    for trip, start in zip(usable, starts[:-1], strict=True):
        split = split_of[trip.name]
        stride = settings.stride if split == "train" else settings.evaluation_stride
        within = window_ends(trip.seconds, length=settings.window, stride=stride)
        ends[split].append(start + within)
        trip_wh = trip.channels["energy_wh"]
        energy[split].append(window_energy(trip_wh, within, length=settings.window))
    energy_wh = {split: np.concatenate(energy[split]) for split in SPLITS}
    label_scaler = Scaler(np.array(0.0), np.array(settings.label_scale_wh))
    if settings.label_scaling == "vehicle":
        label_scaler = SCALINGS[settings.scaling](energy_wh["train"])
    if settings.components or settings.selected:
        scaled = [scaler.forward(rows) for rows in training]
        scaler = replace(scaler, mix=_mix(scaled, energy["train"], settings))
    return Client(
        name=vehicle.name,
        features=settings.columns,
        window=settings.window,
        series=np.concatenate([scaler.forward(rows).astype(np.float32) for rows in columns]),
        ends={split: np.concatenate(ends[split]) for split in SPLITS},
        labels={
            split: label_scaler.forward(energy_wh[split]).astype(np.float32) for split in SPLITS
        },
        label_center_wh=float(label_scaler.center),
        label_scale_wh=float(label_scaler.scale),
        strata=_strata([trip for trip in usable if split_of[trip.name] == "test"], settings),
        trips={split: tuple(t for t, s in split_of.items() if s == split) for split in SPLITS},
        known=_known(usable, split_of, settings) if needs_climb(names) else {},
        kind=vehicle.kind,
        simulated=vehicle.labels == "simulated",
        scaler=scaler,
    )


def _scaler(rows: FloatArray, names: tuple[str, ...], settings: DataSettings) -> Scaler:
    """How the vehicle's features are scaled, from `rows` [seconds, features] of training trips.

    Climb keeps its 0, a level road, whatever the scaling.
    """
    typical = np.array([FEATURES[name].about_zero for name in names])
    usual, zero, fixed = SCALINGS[settings.scaling](rows), about_zero(rows, typical), typical > 0
    center = np.where(fixed, zero.center, usual.center)
    return Scaler(center, np.where(fixed, zero.scale, usual.scale))


def _known(
    trips: Iterable[Trip], split_of: Mapping[str, str], settings: DataSettings
) -> dict[str, BoolArray]:
    """Whether the climb of validation and test windows was read, in the order of `Client.ends`."""
    known: dict[str, list[BoolArray]] = {"validation": [], "test": []}
    for trip in trips:
        if split_of[trip.name] not in known:
            continue
        # Climb that was not read here was given, and all of it.
        read = trip.channels.get("climb_known", np.ones(trip.seconds))
        length, stride = settings.window, settings.evaluation_stride
        ends = window_ends(trip.seconds, length=length, stride=stride)
        known[split_of[trip.name]].append(known_windows(read, ends, length=length))
    return {split: np.concatenate(parts) for split, parts in known.items()}


def _mix(
    training: list[FloatArray], energy_wh: list[FloatArray], settings: DataSettings
) -> FloatArray:
    """Map to the vehicle's own components or selected features, from its training trips alone."""
    if settings.components:
        return principal_mix(np.concatenate(training), settings.components)
    means = []
    for rows in training:
        ends = window_ends(len(rows), length=settings.window, stride=settings.stride)
        columns = [window_means(column, ends, length=settings.window) for column in rows.T]
        means.append(np.stack(columns, axis=1))
    return selection_mix(np.concatenate(means), np.concatenate(energy_wh), settings.selected)


def build_fleet(
    vehicles: Iterable[Vehicle],
    settings: DataSettings,
    source: str,
    *,
    on_vehicle: Callable[[int], None] | None = None,
) -> Fleet:
    """Clients of all vehicles; neither their telemetry nor their windows need fit in memory.

    Consumes the vehicles one at a time and tells `on_vehicle` how many there are so far.
    """

    def built() -> Iterator[Client]:
        for number, vehicle in enumerate(vehicles, start=1):
            yield build_client(vehicle, settings)
            if on_vehicle is not None:
                on_vehicle(number)

    clients, mapped = gather_clients(built())
    if not clients:
        raise DataError(f"The fleet '{source}' has no vehicles. Import or generate some first.")
    for name, times in Counter(client.name for client in clients).items():
        if times > 1:
            raise DataError(
                f"The fleet '{source}' has {times} vehicles named '{name}'. "
                "Names must be unique within a fleet: rename or merge them."
            )
    if settings.held_out >= len(clients):
        raise DataError(
            f"held_out = {settings.held_out} leaves none of the {len(clients)} vehicles of "
            f"'{source}' to train. Hold out at most {len(clients) - 1}."
        )
    never = held_out_vehicles([c.name for c in clients], settings.held_out, settings.split_seed)
    marked = tuple(replace(client, held_out=client.name in never) for client in clients)
    return Fleet(marked, settings, source, mapped)


def _strata(
    test_trips: list[Trip], settings: DataSettings
) -> dict[str, tuple[tuple[str, ...], NDArray[np.int8]]]:
    """Classes of every test window, for each stratum whose channel all test trips have."""
    strata = {}
    length, stride = settings.window, settings.evaluation_stride
    for name, stratum in STRATA.items():
        channels = [trip.channels.get(stratum.channel) for trip in test_trips]
        known = [values for values in channels if values is not None and np.isfinite(values).all()]
        if len(known) < len(test_trips):
            continue
        means = []
        for values in known:
            ends = window_ends(len(values), length=length, stride=stride)
            means.append(window_means(values, ends, length=length))
        strata[name] = (stratum.names, stratum.codes(np.concatenate(means)))
    return strata
