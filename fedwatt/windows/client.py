"""A vehicle as the federation sees it: one scaled series and the index of its windows.

Windows are never materialised: `Client.series` is `[seconds, features]`, and a window is the row
of its last second. Memory is O(seconds), whatever the window length. A client is built from its own
vehicle alone, so a deployed vehicle builds the very same bytes as a simulation does.
`DataSettings` says how.
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError, check
from fedwatt.settings import Checked, choice, number
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Vehicle
from fedwatt.windows.features import CLIMB_KNOWN, FEATURES, feature_names, trip_features
from fedwatt.windows.labelled import (
    LabelledTrip,
    Strata,
    elevation_masked,
    window_strata,
)
from fedwatt.windows.scaling import SCALINGS, FleetScaling, Scaler, about_zero, pooled
from fedwatt.windows.splits import SPLITS, held_out_vehicles, lowest_draws, natural_key
from fedwatt.windows.targets import ENERGY, Target, get_target, refuse_leaks
from fedwatt.windows.vehicle_trips import prepared as prepared
from fedwatt.windows.vehicle_trips import split_of_trips as split_of_trips
from fedwatt.windows.vehicle_trips import split_of_unseen, usable_trips


@dataclass(frozen=True, kw_only=True)
class DataSettings(Checked):
    """Settings of the windows that are made from telemetry.

    `features` is a feature set ("base", "physics", "elevation"), single features, or several of
    them separated by commas. `target` is what a window predicts, one of `fedwatt.windows.targets`,
    and with a `horizon` the target that many samples later. `window` and the strides are in
    samples: `stride` between training windows, `evaluation_stride` between validation and test
    windows. With `label_scaling` "vehicle" a label is centred and scaled like a feature, from
    training windows; with "fleet" it is divided by `label_scale_wh`, in the target's unit. `split`
    are the shares of training, validation and test trips; `held_out` is the number of vehicles that
    never train. With `align` its motion is delayed by the time offset between motion and power that
    its training trips show (`fedwatt.windows.time_offset`).
    """

    features: str = "base"
    target: str = "energy"
    horizon: int = number(0, "[0, inf]", "samples (0: the target's own)")
    window: int = number(60, "[1, inf]", "sample")
    stride: int = number(1, "[1, inf]", "sample")
    evaluation_stride: int = number(10, "[1, inf]", "sample")
    scaling: str = choice(*SCALINGS)
    label_scaling: str = choice("vehicle", "fleet")
    label_scale_wh: float = number(100.0, "(0, inf)", "Wh")
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)
    split_seed: int = 0
    held_out: int = number(0, "[0, inf]", "vehicles")
    align: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_leaks(self.predicts, feature_names(self.features))
        object.__setattr__(self, "split", tuple(self.split))
        shares = len(self.split) == 3 and all(share > 0 for share in self.split)
        allowed = "three positive shares that add up to 1, such as (0.7, 0.1, 0.2)"
        check(self, "split", shares and math.isclose(sum(self.split), 1, abs_tol=1e-9), allowed)

    @property
    def predicts(self) -> Target:
        """The target of a window."""
        target = get_target(self.target)
        return replace(target, horizon=self.horizon) if self.horizon else target

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a client's series."""
        return feature_names(self.features)


log = logging.getLogger("fedwatt.windows")


@dataclass(frozen=True, eq=False)
class Client:
    """The windows of one vehicle, made from its data alone.

    name, kind     of the vehicle
    features       names of the columns of `series`
    window         samples in a window
    series         float32 [seconds, features]: scaled, trips one after the other
    ends           split -> int64 [windows]: row of `series` where each window ends
    labels         split -> float32 [windows]: scaled target of each window, in the order of `ends`
    label_*_wh     the target in its unit (Wh for energy) is label * label_scale_wh +
                   label_center_wh
    label_typical  size of an ordinary label, in the target's unit
    label_grain    size of the steps in which the labels' channel moves, in the target's unit; 0
                   for a fine channel
    strata         "speed", "grade", ... (`STRATA`) -> class names and int8 [test windows]
    trips          split -> names of its trips
    masked         number of the last training windows, which repeat others with their elevation
                   masked (`fedwatt.windows.labelled`)
    held_out       the vehicle is evaluated but never trains
    simulated      its energy is simulated, not measured
    scaler         how `series` was scaled; None for a series made by hand
    lag_s          seconds by which its motion was delayed before features were made of it
    mass_kg        of the vehicle; 0: unknown
    """

    name: str
    features: tuple[str, ...]
    window: int
    series: NDArray[np.float32]
    ends: Mapping[str, IntArray]
    labels: Mapping[str, NDArray[np.float32]]
    label_center_wh: float
    label_scale_wh: float
    strata: Strata
    trips: Mapping[str, tuple[str, ...]]
    masked: int = 0
    held_out: bool = False
    kind: str = "passenger"
    simulated: bool = True
    scaler: Scaler | None = None
    label_typical: float = ENERGY.typical
    label_grain: float = 0.0
    lag_s: float = 0.0
    mass_kg: float = 0.0

    def energy_wh(self, labels: NDArray[np.floating]) -> FloatArray:
        """Return scaled labels or predictions of any shape in the target's unit, float64."""
        return np.asarray(labels, float) * self.label_scale_wh + self.label_center_wh

    @property
    def recorded_windows(self) -> int:
        """Number of training windows without masked elevation; they come first."""
        return len(self.ends["train"]) - self.masked

    def as_recorded(self) -> "Client":
        """Return the vehicle without training windows whose elevation is masked."""
        if not self.masked:
            return self
        count = self.recorded_windows
        ends = {**self.ends, "train": self.ends["train"][:count]}
        labels = {**self.labels, "train": self.labels["train"][:count]}
        return replace(self, ends=ends, labels=labels, masked=0)


@dataclass(frozen=True, eq=False)
class Fleet:
    """Clients in ascending natural order of their names, and how they were made."""

    clients: Sequence[Client]
    settings: DataSettings
    source: str
    is_lazy: ClassVar[bool] = False
    """Whether vehicles are made when they take part (`fedwatt.windows.lazy`)."""
    origin: Mapping[str, str | int] = field(default_factory=dict)
    """The section [fleet] of a configuration that makes the same fleet; empty: there is none."""
    account: tuple[str, ...] = ()
    """Sentences about trips that cleaning kept and dropped; empty: nothing was cleaned."""

    def __repr__(self) -> str:
        """Return the source and size of the fleet, not its arrays."""
        size = f"{len(self.clients)} vehicles, {self.windows('train'):,} training windows"
        return f"Fleet({self.source!r}, {size})"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all vehicles, held-out ones included."""
        return tuple(map(self.name, range(len(self.clients))))

    def name(self, place: int) -> str:
        """Return the name of the vehicle at a place."""
        return self.clients[place].name

    @cached_property
    def held_out(self) -> BoolArray:
        """True for vehicles that never train, [vehicles]."""
        return np.array([client.held_out for client in self.clients], dtype=bool)

    @property
    def at_hand(self) -> Sequence[Client]:
        """The vehicles from which figures of the fleet are computed: all, unless it is lazy."""
        return self.clients

    def fetch(self, places: Sequence[int], *, stay: bool = False) -> list[Client]:
        """Return the vehicles at these places; with `stay` a lazy fleet never forgets them."""
        return [self.clients[place] for place in places]

    def prepare(self, places: Sequence[int]) -> None:
        """Begin to make the vehicles of the next round, in a lazy fleet."""

    def let_go(self) -> None:
        """Forget the vehicles of the last round, in a lazy fleet."""

    def train_windows(self, place: int) -> int:
        """Return the number of training windows n_k of the vehicle at a place."""
        return len(self.clients[place].ends["train"])

    def sample(self, count: int) -> list[int]:
        """Return the places of the vehicles on which models are evaluated, ascending; 0: all.

        They are at most `count` vehicles that train, and as many that are held out. Every name
        draws its own number, so all methods, seeds and rounds are evaluated on the same vehicles.
        """
        chosen: list[NDArray[np.int64]] = []
        for held_out in (False, True):
            group = np.flatnonzero(self.held_out == held_out)
            if 0 < count < len(group):
                names = (self.name(int(place)) for place in group)
                seed = self.settings.split_seed
                group = group[lowest_draws(names, count, seed, "evaluated vehicles")]
            chosen.append(group)
        return sorted(np.concatenate(chosen).tolist())

    @property
    def window(self) -> int:
        """Samples in a window."""
        return self.settings.window

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of every client's series."""
        return self.settings.columns

    def windows(self, split: str) -> int:
        """Return the number of windows of a split, estimated from the vehicles in memory.

        Held-out vehicles have no part in training.
        """
        some = [c for c in self.at_hand if split != "train" or not c.held_out]
        of_all = int((~self.held_out).sum()) if split == "train" else len(self.clients)
        return round(of_all * sum(len(client.ends[split]) for client in some) / max(len(some), 1))

    def split_hash(self) -> str:
        """Return a digest of the trips of each vehicle and split."""
        digest = blake2b(digest_size=16)
        for client in self.clients:
            trips = {split: client.trips[split] for split in SPLITS}
            digest.update(json.dumps([client.name, client.held_out, trips]).encode())
        return digest.hexdigest()

    def data_hash(self) -> str:
        """Return a digest of all data on which a model is trained and evaluated."""
        return self._data_hash

    @cached_property
    def _data_hash(self) -> str:
        digest = blake2b(digest_size=16)
        for client in self.clients:
            identity = [client.name, client.features, client.window, client.series.shape]
            identity += [client.held_out, client.label_center_wh, client.label_scale_wh]
            digest.update(json.dumps(identity).encode())
            digest.update(client.series.tobytes())
            for split in SPLITS:
                digest.update(client.ends[split].tobytes())
                digest.update(client.labels[split].tobytes())
        return digest.hexdigest()


def build_client(
    vehicle: Vehicle, settings: DataSettings, *, unseen: FleetScaling | None = None
) -> Client:
    """Return features, splits, windows and labels of one vehicle.

    Trips shorter than the window hold no window and are left out. An `unseen` vehicle may have any
    number of trips: its scaling is pooled with its fleet's, and it has no test trips.
    """
    vehicle.refuse_unless_trainable()
    vehicle = prepared(vehicle, settings, unseen)
    names = feature_names(settings.features)
    target = settings.predicts
    window = settings.window
    splits = split_of_trips if unseen is None else split_of_unseen
    split_of = splits(vehicle, settings)
    parts = _labelled_trips(vehicle, settings, split_of)
    of = {split: [part for part in parts if part.split == split] for split in SPLITS}
    no_rows = np.empty((0, len(names)))
    rows = np.concatenate([no_rows, *(part.rows for part in of["train"])])
    values = {split: _joined([part.labels for part in of[split]]) for split in SPLITS}
    if unseen is None:
        _refuse_empty(values, vehicle, target)
    scaler, label_scaler = _scalers(rows, values["train"], names, settings, unseen)
    masked = []
    if CLIMB_KNOWN in names:
        masked = [elevation_masked(part, names, vehicle.name) for part in of["train"]]
    of["train"] += masked
    parts += masked
    starts = dict(zip(parts, np.cumsum([0, *(len(part.rows) for part in parts)]), strict=False))
    labels = {split: _joined([part.labels for part in of[split]]) for split in SPLITS}
    series = [scaler.forward(part.rows).astype(np.float32) for part in parts]
    return Client(
        name=vehicle.name,
        features=settings.columns,
        window=window,
        series=np.concatenate(series) if series else no_rows.astype(np.float32),
        ends={s: _joined([starts[part] + part.ends for part in of[s]], np.int64) for s in SPLITS},
        labels={s: label_scaler.forward(labels[s]).astype(np.float32) for s in SPLITS},
        label_center_wh=float(label_scaler.center),
        label_scale_wh=float(label_scaler.scale),
        strata=window_strata(of["test"], window) if of["test"] else {},
        trips={
            s: tuple(t for t, trip_split in split_of.items() if trip_split == s) for s in SPLITS
        },
        masked=sum(len(part.ends) for part in masked),
        kind=vehicle.kind,
        simulated=vehicle.labels == "simulated",
        scaler=scaler,
        label_typical=target.typical,
        label_grain=target.grain([part.trip for part in parts], vehicle.facts, vehicle.name),
        lag_s=float(vehicle.facts.get("lag_s", 0.0)),
        mass_kg=float(vehicle.facts.get("mass_kg") or 0.0),
    )


def _joined(parts: Sequence[NDArray[Any]], dtype: type = np.float64) -> NDArray[Any]:
    """Return the parts one after the other; empty of none."""
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _labelled_trips(
    vehicle: Vehicle, settings: DataSettings, split_of: Mapping[str, str]
) -> list[LabelledTrip]:
    names = feature_names(settings.features)
    target = settings.predicts
    length = settings.window
    parts = []
    for trip in usable_trips(vehicle, settings):
        rows = trip_features(trip, names, vehicle.name)
        split = split_of[trip.name]
        stride = settings.stride if split == "train" else settings.evaluation_stride
        labelled = target.windows(trip, vehicle.facts, vehicle.name, length=length, stride=stride)
        parts.append(LabelledTrip(trip, split, rows, *labelled))
    return parts


def _refuse_empty(labels: Mapping[str, FloatArray], vehicle: Vehicle, target: Target) -> None:
    """Refuse a vehicle of which a split has no window with a label."""
    for split, split_labels in labels.items():
        if not len(split_labels):
            raise DataError(
                f"Vehicle '{vehicle.name}' has no {split} window with a label of the target "
                f"'{target.name}'. Give it more driving, or leave the vehicle out."
            )


def _scalers(
    rows: FloatArray,
    labels: FloatArray,
    names: tuple[str, ...],
    settings: DataSettings,
    unseen: FleetScaling | None,
) -> tuple[Scaler, Scaler]:
    """Return the scaling of features and labels, pooled with the fleet's for an unseen vehicle."""
    label_scaler = Scaler(np.array(0.0), np.array(settings.label_scale_wh))
    if unseen is not None and not len(labels):
        by_vehicle = settings.label_scaling == "vehicle"
        return unseen.features, unseen.labels if by_vehicle else label_scaler
    scaler = _scaler(rows, names, settings)
    if settings.label_scaling == "vehicle":
        label_scaler = SCALINGS[settings.scaling](labels)
        if unseen is not None:
            label_scaler = pooled(unseen.labels, label_scaler, len(rows))
    return scaler if unseen is None else pooled(unseen.features, scaler, len(rows)), label_scaler


def _scaler(rows: FloatArray, names: tuple[str, ...], settings: DataSettings) -> Scaler:
    """Return the scaling of the features, from `rows` [seconds, features] of training trips.

    Climb keeps its 0, a level road, whatever the scaling.
    """
    typical = np.array([FEATURES[name].about_zero for name in names])
    usual = SCALINGS[settings.scaling](rows)
    zero = about_zero(rows, typical)
    fixed = typical > 0
    center = np.where(fixed, zero.center, usual.center)
    return Scaler(center, np.where(fixed, zero.scale, usual.scale))


def lacks_target(vehicle: Vehicle, settings: DataSettings) -> bool:
    """Return whether some usable trip of the vehicle has no channel of which the target is made."""
    needed = set(settings.predicts.made_of)
    return any(not needed <= set(trip.channels) for trip in usable_trips(vehicle, settings))


def refuse_all_held_out(settings: DataSettings, vehicles: int, source: str) -> None:
    """Refuse to hold out so many vehicles that none is left to train."""
    if settings.held_out >= vehicles:
        raise DataError(
            f"held_out = {settings.held_out} leaves none of the {vehicles} vehicles of "
            f"'{source}' to train. Hold out at most {vehicles - 1}."
        )


def build_fleet(
    vehicles: Iterable[Vehicle],
    settings: DataSettings,
    source: str,
    *,
    on_vehicle: Callable[[int], None] | None = None,
) -> Fleet:
    """Return the clients of all vehicles, in natural order of their names.

    Vehicles are consumed one at a time: only their windows stay in memory. `on_vehicle` is called
    with their number so far. Vehicles without the channels of the target are left out, and a
    warning names them.
    """
    without: list[Vehicle] = []

    def built() -> Iterator[Client]:
        for count, vehicle in enumerate(vehicles, start=1):
            if lacks_target(vehicle, settings):
                without.append(vehicle)
            else:
                yield build_client(vehicle, settings)
            if on_vehicle is not None:
                on_vehicle(count)

    clients = sorted(built(), key=lambda client: natural_key(client.name))
    if without and not clients:
        build_client(without[0], settings)  # says what is missing, and what to predict instead
    if without:
        log.warning(
            "%d of %d vehicles have nothing of which the target '%s' is made (%s) and are left "
            "out: %s.",
            len(without),
            len(without) + len(clients),
            settings.predicts.name,
            ", ".join(settings.predicts.made_of),
            ", ".join([vehicle.name for vehicle in without[:5]] + ["..."] * (len(without) > 5)),
        )
    if not clients:
        raise DataError(f"The fleet '{source}' has no vehicles. Import or generate some first.")
    for name, times in Counter(client.name for client in clients).items():
        if times > 1:
            raise DataError(
                f"The fleet '{source}' has {times} vehicles named '{name}'. "
                "Names must be unique within a fleet: rename or merge them."
            )
    refuse_all_held_out(settings, len(clients), source)
    never = held_out_vehicles([c.name for c in clients], settings.held_out, settings.split_seed)
    marked = tuple(replace(client, held_out=client.name in never) for client in clients)
    return Fleet(marked, settings, source)
