"""Altered fleets for experiments: trips dealt to other clients, and corrupted training data.

For studies of heterogeneity the trips of vehicles are dealt out to clients: by a mixture in which
every client has a favourite regime ("mild", "moderate", "severe"), or by Dirichlet(α) shares of
each regime ("dirichlet:0.3"; Hsu et al. 2019). A regime is the speed class of a trip. Such clients
mix trips of several vehicles: this is an experiment on stored data, not something vehicles could do
without showing each other their trips.

Corrupted vehicles, whose training labels are noisy, show how a method copes with bad clients. Only
training trips are changed: validation and test stay sound, so errors are measured on the truth.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
from numpy.random import Generator

from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.randomness import generator
from fedwatt.telemetry.trip import FloatArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, split_of_trips
from fedwatt.windows.splits import SPLITS, natural_key

# Mean speed of a trip, stops included, at which one regime ends and the next begins.
REGIMES = ("slow", "medium", "fast")
REGIME_EDGES_MPS = (25 / 3.6, 40 / 3.6)
# Share of a client's trips that are of its favourite regime, if all regimes were equally common.
SKEWS: Mapping[str, float] = {"mild": 0.5, "moderate": 0.7, "severe": 0.9}
DRAWS = 100


def trip_regime(*parts: Trip) -> int:
    """Return the place in `REGIMES` of a trip, or of its parts; an edge belongs to the faster one.

    >>> REGIMES[trip_regime(Trip("1", {"speed_mps": np.array([0.0, 30.0])}))]
    'fast'
    """
    mean_mps = float(np.mean(np.concatenate([trip.channels["speed_mps"] for trip in parts])))
    return int(np.searchsorted(REGIME_EDGES_MPS, mean_mps, side="right"))


def mixture_shares(skew: str, clients: int) -> FloatArray:
    """Return the share of each regime's trips for each client, [regimes, clients]; rows sum to 1.

    Client 1 prefers slow trips, client 2 medium ones, client 3 fast ones, client 4 slow ones ...

    >>> mixture_shares("severe", 3)
    array([[0.9 , 0.05, 0.05], [0.05, 0.9 , 0.05], [0.05, 0.05, 0.9 ]])
    """
    favourite = np.arange(clients) % len(REGIMES)
    other_share = (1 - SKEWS[skew]) / (len(REGIMES) - 1)
    weights = np.where(favourite == np.arange(len(REGIMES))[:, None], SKEWS[skew], other_share)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def dirichlet_shares(alpha: float, clients: int, rng: Generator) -> FloatArray:
    """Return shares as in `mixture_shares`, one Dirichlet(α, ..., α) draw per regime."""
    # By gammas: numpy's own draw is NaN when a small α lets all of them underflow.
    weights = np.maximum(rng.standard_gamma(alpha, (len(REGIMES), clients)), 1e-300)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def repartition(
    vehicles: Iterable[Vehicle], recipe: str, clients: int, seed: int = 0
) -> list[Vehicle]:
    """Return `clients` new clients to whom the trips of the vehicles are dealt by a recipe.

    Every trip goes to exactly one client, and each client's share of a regime is met to within one
    trip. Clients are named "client-001" and so on, their trips "vehicle/trip".
    """
    ordered = sorted(vehicles, key=lambda vehicle: natural_key(vehicle.name))
    alpha = _alpha(recipe)
    kinds = sorted({vehicle.kind for vehicle in ordered})
    if len(kinds) > 1:
        raise DataError(
            f"Trips of {' and '.join(kinds)} vehicles cannot be dealt to the same clients. "
            "Partition each kind by itself."
        )
    for attempt in range(1 if alpha is None else DRAWS):
        if alpha is None:
            shares = mixture_shares(recipe, clients)
        else:
            rng = generator(seed, "partition", recipe, clients, attempt)
            shares = dirichlet_shares(alpha, clients, rng)
        dealt = deal(ordered, shares, seed)
        recorded = [{(v.name, trip.recording) for v, trip in trips} for trips in dealt]
        if min(map(len, recorded)) >= len(SPLITS):
            return [_client(number, trips, ordered) for number, trips in enumerate(dealt, start=1)]
    raise DataError(
        f"The partition '{recipe}' leaves one of {clients} clients with fewer than {len(SPLITS)} "
        f"trips out of {sum(len(v.trips) for v in ordered)}. Ask for fewer clients or less skew."
    )


def deal(
    vehicles: Iterable[Vehicle], shares: FloatArray, seed: int
) -> list[list[tuple[Vehicle, Trip]]]:
    """Return the trips of each client; `shares` is [regimes, clients].

    Trips of a regime queue in an order drawn trip by trip, and the queue is cut by the shares. The
    parts of a trip that was cut at gaps stay together: their driving is the same.
    """
    recordings: dict[tuple[str, str], list[tuple[Vehicle, Trip]]] = {}
    for vehicle in vehicles:
        for trip in vehicle.trips:
            recordings.setdefault((vehicle.name, trip.recording), []).append((vehicle, trip))
    draws = {key: generator(seed, "partition order", *key).random() for key in recordings}
    queues: list[list[list[tuple[Vehicle, Trip]]]] = [[] for _ in REGIMES]
    for key in sorted(recordings, key=lambda key: (draws[key], *key)):
        queues[trip_regime(*(trip for _, trip in recordings[key]))].append(recordings[key])
    dealt: list[list[tuple[Vehicle, Trip]]] = [[] for _ in range(shares.shape[1])]
    for queue, row in zip(queues, shares, strict=True):
        cuts = np.round(np.cumsum(row) * len(queue)).astype(int)
        cuts[-1] = len(queue)
        for client, (start, stop) in enumerate(pairwise([0, *cuts])):
            dealt[client] += chain.from_iterable(queue[start:stop])
    return dealt


def _alpha(recipe: str) -> float | None:
    """Return α of "dirichlet:α", or None for another recipe."""
    name, _, value = recipe.partition(":")
    if name != "dirichlet":
        if recipe not in SKEWS:
            raise SettingError(unknown("partition", recipe, [*SKEWS, "dirichlet:0.3"]))
        return None
    try:
        alpha = float(value)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise SettingError(
            f"partition '{recipe}': the number after 'dirichlet:' must be positive, such as 0.1 "
            "(very uneven) or 100 (nearly even)."
        )
    return alpha


def _client(number: int, trips: list[tuple[Vehicle, Trip]], vehicles: list[Vehicle]) -> Vehicle:
    ordered = sorted(trips, key=lambda pair: (natural_key(pair[0].name), natural_key(pair[1].name)))
    simulated = any(vehicle.labels == "simulated" for vehicle, _ in trips)
    return Vehicle(
        name=f"client-{number:03d}",
        trips=tuple(
            replace(
                trip,
                name=f"{vehicle.name}/{trip.name}",
                recording=f"{vehicle.name}/{trip.recording}",
                start_time_s=math.nan,  # the vehicles' clocks may differ
            )
            for vehicle, trip in ordered
        ),
        kind=vehicles[0].kind,
        labels="simulated" if simulated else "measured",
    )


NOISE_BLOCK_S = 60


def corrupted(vehicle: Vehicle, noise: float, settings: DataSettings, seed: int = 0) -> Vehicle:
    """Return the vehicle with noise in the energy of its training trips.

    The energy of each minute is off by `noise` standard deviations of a minute's energy; `settings`
    say which trips train.
    """
    split_of = split_of_trips(vehicle, settings)
    training = [trip for trip in vehicle.trips if split_of.get(trip.name) == "train"]
    for trip in training:
        if "energy_wh" not in trip.channels:
            raise DataError(
                f"Vehicle '{vehicle.name}', trip '{trip.name}' has no channel 'energy_wh' to add "
                "noise to. Leave the vehicle out."
            )
    spread_wh = _minute_spread_wh(training)

    def corrupt(trip: Trip) -> Trip:
        if trip not in training:
            return trip
        rng = generator(seed, "fault", "label noise", vehicle.name, trip.name)
        blocks = -(-trip.seconds // NOISE_BLOCK_S)
        error_wh = rng.normal(scale=noise * spread_wh / NOISE_BLOCK_S, size=blocks)
        noisy_wh = trip.channels["energy_wh"] + np.repeat(error_wh, NOISE_BLOCK_S)[: trip.seconds]
        return replace(trip, channels={**trip.channels, "energy_wh": noisy_wh})

    facts = {**vehicle.facts, "label_noise": noise}
    return replace(vehicle, trips=tuple(corrupt(trip) for trip in vehicle.trips), facts=facts)


def _minute_spread_wh(trips: Iterable[Trip]) -> float:
    """Return the standard deviation of the energy of full minutes."""
    sums = [np.empty(0)]
    for trip in trips:
        full_s = trip.seconds // NOISE_BLOCK_S * NOISE_BLOCK_S
        energy_wh = trip.channels["energy_wh"][:full_s]
        sums.append(energy_wh.reshape(-1, NOISE_BLOCK_S).sum(axis=1))
    minutes_wh = np.concatenate(sums)
    return float(minutes_wh.std()) if len(minutes_wh) else 0.0


def corrupt_some(
    vehicles: Iterable[Vehicle], share: float, noise: float, settings: DataSettings, seed: int = 0
) -> Iterator[Vehicle]:
    """Yield the vehicles, each corrupted with probability `share` by a draw keyed by its name."""
    if not 0 < noise < math.inf:
        raise SettingError(f"The noise must be a positive number, not {noise}.")
    return (
        corrupted(vehicle, noise, settings, seed)
        if generator(seed, "spoiled", vehicle.name).random() < share
        else vehicle
        for vehicle in vehicles
    )
