"""Simulate the traffic of a very large fleet without training: participants, bytes, time, server.

    python -m benchmarks.traffic        measures, and writes results/traffic.json and docs/scale.md

Availability, participants and lost uploads are the draws of the federation itself, made for
all vehicles at once. A round then lasts as long as its vehicles take:

    time of a vehicle = down / link + H_k / computer + up / link + 2 · latency

The server goes on when the share `enough` of those asked has replied, at the latest after
`deadline_s`; later replies are wasted. Links and computers differ from vehicle to vehicle by
log-normal factors that stay the same in all rounds. The bytes are those that the method's rules
really send, the server's time for
an upload (unpacking it, and its part of the next model) is measured: processor time of one thread,
the methods in turns.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save

from benchmarks.marked import write_blocks
from fedwatt.errors import SettingError, check
from fedwatt.federation.participation import (
    first_available,
    lost_replies,
    next_available,
    participants,
)
from fedwatt.federation.settings import Availability
from fedwatt.files import write_text
from fedwatt.methods import get
from fedwatt.methods.method import costs
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import Replies
from fedwatt.models import get_model
from fedwatt.randomness import generator
from fedwatt.report.style import name_of

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "results" / "traffic.json"
PAGE: Final = ROOT / "docs" / "scale.md"
COUNTED: Final = ("fedavg", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fo-ri-fedavg")
AVAILABLE: Final = 0.2
LEAVE: Final = 0.02
LOSS: Final = 0.05
ROUNDS: Final = 300
WINDOW: Final = 60
FEATURES: Final = 8

Update = Callable[[Sequence[Rows]], object]
"""Makes the next model of the unpacked messages."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LargeFleet:
    """A fleet in numbers. Its links and computers are assumptions: put in those of your own."""

    vehicles: int = 1_000_000
    participation: float = 0.01
    """C, the share of the available vehicles that is asked in a round."""
    steps: int = 200
    """H, local steps of a vehicle with the median number of windows."""
    down_mbps: float = 20.0
    """Median link to a vehicle, megabit a second; from a vehicle:"""
    up_mbps: float = 5.0
    latency_s: float = 0.1
    """One way."""
    steps_per_s: float = 100.0
    """Median speed of a vehicle's computer."""
    spread: float = 0.7
    """Standard deviation of the logarithms of links, computers and numbers of windows."""
    enough: float = 0.9
    """Share of those asked whose replies make the next model."""
    deadline_s: float = 60.0
    """The longest a round may last."""

    def __post_init__(self) -> None:
        check(self, "vehicles", self.vehicles >= 1, "at least 1")
        check(self, "participation", 0 < self.participation <= 1, "in (0, 1]")
        check(self, "steps", self.steps >= 1, "at least 1")
        for name in ("down_mbps", "up_mbps", "steps_per_s", "deadline_s"):
            check(self, name, 0 < getattr(self, name) < inf, "above 0 and finite")
        for name in ("latency_s", "spread"):
            check(self, name, 0 <= getattr(self, name) < inf, "at least 0")
        check(self, "enough", 0 < self.enough <= 1, "in (0, 1]")


@dataclass(frozen=True)
class Load:
    """Bytes and server time of a method, per vehicle and round."""

    down_bytes: int
    """To each vehicle that is asked."""
    up_bytes: int
    """From each vehicle that replies."""
    server_s: float
    """Processor time of the server for one reply."""


@dataclass(frozen=True)
class Traffic:
    """Rounds of a fleet, [rounds] each unless said otherwise."""

    available: NDArray[np.int64]
    called: NDArray[np.int64]
    replied: NDArray[np.int64]
    """In time: these count."""
    late: NDArray[np.int64]
    """Sent, but not waited for."""
    lost: NDArray[np.int64]
    seconds: FloatArray
    down_bytes: FloatArray
    up_bytes: FloatArray
    server_s: FloatArray
    reached: NDArray[np.int64]
    """Vehicles that have been asked at least once so far."""
    times: NDArray[np.int64]
    """Number of rounds in which each vehicle was asked, [K]."""

    def summary(self) -> dict[str, Any]:
        """Figures of a typical round and of all of them together."""
        vehicles = len(self.times)
        hours = self.seconds.sum() / 3600
        return {
            "rounds": len(self.seconds),
            "hours": hours,
            "available": float(np.mean(self.available)),
            "asked": float(np.mean(self.called)),
            "replied": float(np.mean(self.replied)),
            "late": float(np.mean(self.late)),
            "lost": float(np.mean(self.lost)),
            "round_s": float(np.median(self.seconds)),
            "round_s_p95": float(np.quantile(self.seconds, 0.95)),
            "down_gb_per_round": float(np.mean(self.down_bytes)) / 1e9,
            "up_gb_per_round": float(np.mean(self.up_bytes)) / 1e9,
            "terabytes": float(self.down_bytes.sum() + self.up_bytes.sum()) / 1e12,
            "gigabit_per_s": float((self.down_bytes + self.up_bytes).sum() * 8e-9) / hours / 3600,
            "server_s_per_round": float(np.mean(self.server_s)),
            "server_cores": float(self.server_s.sum()) / hours / 3600,
            "reached": int(self.reached[-1]) / vehicles,
            "most_times": int(self.times.max()),
            "megabytes_per_vehicle": float(self.down_bytes.sum() + self.up_bytes.sum())
            / vehicles
            / 1e6,
        }


def churn(available: float, leave: float, loss: float = 0.0) -> Availability:
    """Availability with the share `available` of vehicles there in every round, on average.

    Vehicles come back as often as others leave: p_join · (1 - share) = p_leave · share.

    >>> churn(0.2, 0.02).p_join
    0.005
    """
    if not 0 < available <= 1:
        raise SettingError(f"The available share must be in (0, 1], got {available:g}.")
    join = leave * available / (1 - available) if available < 1 else 1.0
    if join > 1:
        raise SettingError(
            f"A share of {available:g} cannot be available if vehicles leave with probability "
            f"{leave:g}: they would have to come back faster than at once. Lower one of them."
        )
    return Availability(p_leave=leave, p_join=round(join, 12), initially=available, reply_loss=loss)


def simulate(
    fleet: LargeFleet,
    load: Load,
    availability: Availability,
    *,
    rounds: int,
    seed: int = 1,
    on_round: Callable[[int], None] | None = None,
) -> Traffic:
    """Simulate rounds of `fleet` under `load`; the participants do not depend on the load."""
    links_down, links_up, computers, sizes = _differences(fleet, seed)
    available = first_available(seed, fleet.vehicles, availability)
    times = np.zeros(fleet.vehicles, np.int64)
    rows = []
    for number in range(rounds):
        called = participants(seed, number, available, fleet.participation)
        lost = lost_replies(seed, number, fleet.vehicles, availability)[called]
        spent = (
            2 * fleet.latency_s
            + load.down_bytes * 8e-6 / (fleet.down_mbps * links_down[called])
            + fleet.steps * sizes[called] / (fleet.steps_per_s * computers[called])
            + load.up_bytes * 8e-6 / (fleet.up_mbps * links_up[called])
        )
        sending = spent[~lost]
        end = round_end(sending, len(called), fleet.enough, fleet.deadline_s)
        replied = int((sending <= end).sum())
        times[called] += 1
        rows.append(
            (
                int(available.sum()),
                len(called),
                replied,
                len(sending) - replied,
                int(lost.sum()),
                end,
                float(len(called) * load.down_bytes),
                float(len(sending) * load.up_bytes),
                replied * load.server_s,
                int(np.count_nonzero(times)),
            )
        )
        available = next_available(seed, number + 1, available, availability)
        if on_round is not None:
            on_round(number + 1)
    names = [field.name for field in fields(Traffic) if field.name != "times"]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return Traffic(**{name: np.array(column) for name, column in columns.items()}, times=times)


def simulate_methods(
    fleet: LargeFleet,
    loads: Mapping[str, Load],
    availability: Availability,
    *,
    rounds: int,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Traffic]:
    """Simulate rounds of every method; methods with the same bytes share a simulation."""
    sizes = list(dict.fromkeys((load.down_bytes, load.up_bytes) for load in loads.values()))
    by_size: dict[tuple[int, int], Traffic] = {}
    for place, (down, up) in enumerate(sizes):

        def report(done: int, before: int = place * rounds) -> None:
            if progress is not None:
                progress(before + done, len(sizes) * rounds)

        load = Load(down, up, 0.0)
        by_size[down, up] = simulate(
            fleet, load, availability, rounds=rounds, seed=seed, on_round=report
        )
    result = {}
    for name, load in loads.items():
        traffic = by_size[load.down_bytes, load.up_bytes]
        seconds = load.server_s * traffic.replied.astype(np.float64)
        result[name] = replace(traffic, server_s=seconds)
    return result


def round_end(seconds: FloatArray, called: int, enough: float, deadline_s: float) -> float:
    """Return the end of a round whose replies would arrive after `seconds` [P].

    >>> round_end(np.array([3.0, 1.0, 2.0, 90.0]), called=5, enough=0.6, deadline_s=60.0)
    3.0
    >>> round_end(np.array([3.0, 1.0, 2.0, 90.0]), called=5, enough=0.8, deadline_s=60.0)
    60.0
    """
    # 0.07 * 100 is 7.000000000000001 in floating point; its ceiling must still be 7.
    needed = int(np.ceil(round(enough * called, 9)))
    if needed == 0 or needed > len(seconds):
        return deadline_s
    return min(float(np.partition(seconds, needed - 1)[needed - 1]), deadline_s)


def _differences(fleet: LargeFleet, seed: int) -> Sequence[FloatArray]:
    """Factors with median 1 of every vehicle, [K] each: links down and up, computers, windows."""
    shape = (4, fleet.vehicles)
    return list(np.exp(fleet.spread * generator(seed, "traffic").standard_normal(shape)))


def seconds_per_reply(
    methods: Sequence[str], *, model: str = "mlp", replies: int = 200, repeats: int = 9
) -> dict[str, float]:
    """Return the median processor time of the server for one of `replies` uploads, by method."""
    jobs = {name: _job(name, model, replies) for name in methods}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, (messages, update) in jobs.items():
            begun = time.process_time()
            update([load(message) for message in messages])
            seconds[name].append((time.process_time() - begun) / replies)
    return {name: median(times) for name, times in seconds.items()}


def method_loads(methods: Sequence[str], *, model: str = "mlp") -> dict[str, Load]:
    """Return bytes of a round's messages in float32 and the server's measured time, by method."""
    seconds = seconds_per_reply(methods, model=model)
    loads = {}
    for name in methods:
        base = get_model(model, window=WINDOW, features=FEATURES)
        cost = costs(get(name), base)
        loads[name] = Load(4 * cost.down, 4 * cost.up, seconds[name])
    return loads


def _job(name: str, model_name: str, replies: int) -> tuple[list[bytes], Update]:
    """Return messages of `replies` vehicles, and the update that makes a model of them."""
    method = get(name)
    model = method.adapted(get_model(model_name, window=WINDOW, features=FEATURES))
    rng = generator(0, "server bench", name)
    up = {"delta": torch.zeros(1, model.layout.size)}
    up |= {part: row[None] for part, row in method.uploads(model).items()}

    def message() -> bytes:
        noise = {part: 1e-3 * rng.standard_normal(tuple(value.shape)) for part, value in up.items()}
        return save({part: torch.from_numpy(n).to(up[part].dtype) for part, n in noise.items()})

    weights = torch.zeros(model.layout.size)
    state = method.server.state(model)
    ones = torch.ones(replies, dtype=torch.float64)

    def update(unpacked: Sequence[Rows]) -> object:
        rows = {part: torch.cat([upload[part] for upload in unpacked]) for part in up}
        deltas = rows.pop("delta")
        if method.server.normalises:
            rows["accumulation"] = ones
        uploads = Replies(deltas, ones, replies, float(replies), rng, rows)
        return method.update(state, weights, uploads)

    return [message() for _ in range(replies)], update


def measure() -> dict[str, Any]:
    """Return the simulated traffic of a million vehicles with every method."""
    fleet = LargeFleet()
    loads = method_loads(COUNTED)
    traffic = simulate_methods(fleet, loads, churn(AVAILABLE, LEAVE, LOSS), rounds=ROUNDS)
    methods = {name: asdict(loads[name]) | load.summary() for name, load in traffic.items()}
    return {"fleet": asdict(fleet), "methods": methods}


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return sentences on vehicles reached and the duration of a round, by place on the page."""
    first = next(iter(record["methods"].values()))
    fleet = record["fleet"]
    most_mb = first["most_times"] * (first["down_bytes"] + first["up_bytes"]) / 1e6
    megabits = {way: 8e-6 * first[f"{way}_bytes"] for way in ("down", "up")}
    median_s = 2 * fleet["latency_s"] + fleet["steps"] / fleet["steps_per_s"]
    median_s += sum(megabits[way] / fleet[f"{way}_mbps"] for way in megabits)
    reached = (
        f"Of {fleet['vehicles']:,} vehicles {first['available']:,.0f} can be reached at a time and "
        f"{first['asked']:,.0f} are asked in a round; {first['replied']:,.0f} replies count. A "
        f"median vehicle is done in {median_s:.1f} s and the round in {first['round_s']:.1f} s, by "
        f"the spread between vehicles. In {first['rounds']} rounds of "
        f"{name_of(next(iter(record['methods'])))} no vehicle is asked more than "
        f"{first['most_times']} times, which is {most_mb:.1f} MB."
    )
    return {"rounds of a million": reached}


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(measure(), indent=2) + "\n")
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))
