"""Lazy fleets: vehicles are made, or read, when they take part; a million open in seconds.

A `Maker` knows how many vehicles there are and what each is called, and makes any of them. It is a
small value: it travels to other processes and machines, which then make the same vehicles. Nothing
else about a vehicle is known before it is made. A round's participants are made together, on all
cores, and released when the next round's are made. What describes the whole fleet, its windows for
instance, is estimated from a sample that stays in memory, and models are evaluated on a sample: all
vehicles will never be in memory.

`python -m fedwatt.windows.lazy` is one of the processes that make vehicles, a core each: it reads
requests from its input and answers on its output. These are programs of their own rather than
children of `multiprocessing`, which would run the caller's script again in each of them. What
passes between them are Python objects of one program on one machine.
"""

import os
import pickle
import subprocess
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import IO, Any, ClassVar, overload

import numpy as np

from fedwatt.errors import FedwattError, RunError, SettingError, counted
from fedwatt.telemetry.trip import BoolArray, Vehicle
from fedwatt.windows.client import (
    Client,
    DataSettings,
    Fleet,
    build_client,
    build_fleet,
    refuse_all_held_out,
)
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.splits import lowest_draws

CHUNK = 24
"""Vehicles that a process is asked for at a time."""


def make(maker: "Maker", settings: DataSettings, places: Sequence[int]) -> list[Client]:
    """Return the vehicles at these places, ready for training."""
    return [build_client(vehicle, settings) for vehicle in maker.vehicles(places)]


class Workers:
    """Processes that make vehicles, begun when there is work for them; they end with this object.

    With one core to use everything is made in this process.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = cores() if count is None else count
        self.processes: list[subprocess.Popen[bytes]] = []

    def make(self, maker: "Maker", settings: DataSettings, places: Sequence[int]) -> list[Client]:
        """Return the vehicles at these places, in their order."""
        chunks = [places[first : first + CHUNK] for first in range(0, len(places), CHUNK)]
        if self.count < 2 or len(chunks) < 2:
            return [client for chunk in chunks for client in make(maker, settings, chunk)]
        if not self.processes:
            self._begin()
        shares = [chunks[n :: self.count] for n in range(self.count)]

        def ask(number: int) -> list[list[Client]]:
            process = self.processes[number]
            return [_answer(process, (maker, settings, chunk)) for chunk in shares[number]]

        with ThreadPoolExecutor(self.count) as threads:
            answers = list(threads.map(ask, range(self.count)))
        rows = [answers[n % self.count][n // self.count] for n in range(len(chunks))]
        return [client for row in rows for client in row]

    def _begin(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for _ in range(self.count):
            process = subprocess.Popen(
                [sys.executable, "-m", "fedwatt.windows.lazy"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            weakref.finalize(self, _end, process)
            self.processes.append(process)


def cores() -> int:
    """Return how many cores this process may use, at most OMP_NUM_THREADS."""
    here = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        here = len(os.sched_getaffinity(0))
    requested = os.environ.get("OMP_NUM_THREADS", "")
    return min(here, int(requested)) if requested.isdigit() and int(requested) else here


def _answer(process: subprocess.Popen[bytes], request: tuple[Any, ...]) -> list[Client]:
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(request, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (OSError, EOFError) as error:
        raise RunError(
            "A process that makes vehicles has ended early: was it killed, or is memory short? "
            "Completed rounds are kept; continue with --resume."
        ) from error
    if isinstance(answer, Exception):
        raise answer
    clients: list[Client] = answer
    return clients


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent to one that is gone
                pipe.close()
    process.wait()


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Make the vehicles that each request asks for, until the input ends."""
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            reply: object = make(*request)
        except FedwattError as error:
            reply = error
        pickle.dump(reply, replies, pickle.HIGHEST_PROTOCOL)
        replies.flush()


class Maker(ABC):
    """Makes any vehicle of a fleet; names ascend in natural order with the places."""

    def all(self) -> Iterator[Vehicle]:
        """Yield all vehicles, one in memory at a time."""
        for place in range(self.count):
            yield from self.vehicles([place])

    def fleet(self, settings: DataSettings | None = None) -> Fleet:
        """Return a fleet of all vehicles, made at once; without settings, the default ones."""
        fleet = build_fleet(self.all(), settings or DataSettings(), self.source)
        return replace(fleet, origin=self.origin)

    def lazy_fleet(self, settings: DataSettings | None = None) -> "LazyFleet":
        """Return a fleet whose vehicles are made when they take part; default settings if None."""
        settings = settings or DataSettings()
        refuse_climb(settings, self.count)
        refuse_all_held_out(settings, self.count, self.source)
        never = np.zeros(self.count, dtype=bool)
        if settings.held_out:
            names = map(self.name, range(self.count))
            never[lowest_draws(names, settings.held_out, settings.split_seed, "held out")] = True
        clients = LazyClients(self, settings, never)
        origin = self.origin and {**self.origin, "made": "on-demand"}
        return LazyFleet(clients, settings, self.source, origin=origin)

    def place(self, name: str) -> int | None:
        """Return the place of the vehicle with this name, or None."""
        return next((k for k in range(self.count) if self.name(k) == name), None)

    @property
    @abstractmethod
    def source(self) -> str:
        """Description of the vehicles for a reader."""

    @property
    @abstractmethod
    def origin(self) -> Mapping[str, str | int]:
        """The section [fleet] of a configuration that makes the same vehicles."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Vehicles of the fleet."""

    @abstractmethod
    def name(self, place: int) -> str:
        """Return the name of the vehicle at a place."""

    @abstractmethod
    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Return the vehicles at these places, with their trips."""


SAMPLE = 200
"""Vehicles that stay in memory, from which figures of the fleet are estimated; as many again of
the held-out vehicles."""


class LazyClients(Sequence[Client]):
    """The vehicles of a maker by their places; the vehicles of the last round stay in memory."""

    def __init__(self, maker: Maker, settings: DataSettings, held_out: BoolArray) -> None:
        self.maker = maker
        self.settings = settings
        self.held_out = held_out
        self.here: dict[int, Client] = {}
        self.stay: dict[int, Client] = {}
        self.workers = Workers()
        self.aside = ThreadPoolExecutor(1)
        self.coming: Future[dict[int, Client]] | None = None

    def __len__(self) -> int:
        return self.maker.count

    def __iter__(self) -> Iterator[Client]:
        raise SettingError(
            f"This needs the windows of all {len(self):,} vehicles, which are made only when they "
            "take part. Use a fleet of fewer vehicles, made ahead: fleet.made = 'ahead'."
        )

    @overload
    def __getitem__(self, place: int) -> Client: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Client]: ...
    def __getitem__(self, place: int | slice) -> Client | Sequence[Client]:
        if isinstance(place, slice):
            return self.fetch(range(*place.indices(len(self))))
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.fetch([place % len(self)])[0]

    def fetch(self, places: Sequence[int], *, stay: bool = False) -> list[Client]:
        """Return the vehicles at these places, made on all cores; `stay` keeps them in memory."""
        all_loaded = all(place in self.here or place in self.stay for place in places)
        if self.coming is not None and not all_loaded:
            self.here |= self.coming.result()
            self.coming = None
        self.here |= self._made(places)
        clients = [self.stay.get(place) or self.here[place] for place in places]
        if stay:
            self.stay |= zip(places, clients, strict=True)
        return clients

    def prepare(self, places: Sequence[int]) -> None:
        """Begin to make these vehicles in the background; the next `fetch` waits for them."""
        if self.coming is None:
            self.coming = self.aside.submit(self._made, places)

    def _made(self, places: Sequence[int]) -> dict[int, Client]:
        missing = sorted({p for p in places if p not in self.here and p not in self.stay})
        made = self.workers.make(self.maker, self.settings, missing)
        return {
            place: replace(client, held_out=bool(self.held_out[place]))
            for place, client in zip(missing, made, strict=True)
        }

    def __reduce__(self) -> tuple[type, tuple[Maker, DataSettings, BoolArray]]:
        """Return the arguments with which another process makes the same vehicles."""
        return LazyClients, (self.maker, self.settings, self.held_out)


@dataclass(frozen=True, eq=False)
class LazyFleet(Fleet):
    """A fleet of which only a sample and the vehicles of a round are in memory."""

    clients: LazyClients
    is_lazy: ClassVar[bool] = True

    def __repr__(self) -> str:
        """Return the source and size of the fleet."""
        return f"LazyFleet({self.source!r}, {counted(len(self.clients), 'vehicle')})"

    def name(self, place: int) -> str:
        """Return the name of the vehicle at a place."""
        return self.clients.maker.name(place)

    @property
    def held_out(self) -> BoolArray:
        """True for vehicles that never train, [vehicles]."""
        return self.clients.held_out

    @cached_property
    def at_hand(self) -> Sequence[Client]:
        """The sample from which figures of the fleet are estimated."""
        return self.clients.fetch(self.sample(SAMPLE), stay=True)

    def fetch(self, places: Sequence[int], *, stay: bool = False) -> list[Client]:
        """Return these vehicles, made on all cores where they are not loaded yet."""
        return self.clients.fetch(places, stay=stay)

    def prepare(self, places: Sequence[int]) -> None:
        """Begin to make the vehicles of the next round."""
        self.clients.prepare(places)

    def let_go(self) -> None:
        """Forget the vehicles of the last round."""
        self.clients.here.clear()

    def sample(self, count: int) -> list[int]:
        """Return a sample as `Fleet.sample`; 0 stands for `SAMPLE`, since all would not fit."""
        return super().sample(count or SAMPLE)

    def split_hash(self) -> str:
        """Return a digest of the recipe, and of the splits of the sample."""
        return self._digest(self._sampled.split_hash())

    @cached_property
    def _data_hash(self) -> str:
        return self._digest(self._sampled.data_hash())

    @property
    def _sampled(self) -> Fleet:
        return Fleet(tuple(self.at_hand), self.settings, self.source)

    def _digest(self, of_sample: str) -> str:
        text = repr((self.clients.maker, self.settings, of_sample))
        return blake2b(text.encode(), digest_size=16).hexdigest()


def refuse_climb(settings: DataSettings, vehicles: int) -> None:
    """Raise if a feature needs climb, which vehicles on demand cannot learn."""
    if needs_climb(feature_names(settings.features)):
        raise SettingError(
            f"The features '{settings.features}' need climb, which is learned from all vehicles' "
            f"trips, and the {vehicles:,} of this fleet are made only when they take part. "
            "Leave climb out of data.features, or use fewer vehicles: fleet.made = 'ahead'."
        )


if __name__ == "__main__":
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever prints must not be an answer
    serve(sys.stdin.buffer, out)
