"""Cost of the mechanisms in a vehicle, with the methods in turns.

Times of a shared machine drift by more than the methods differ, so methods are timed round by round
in turns: first to last in one round, last to first in the next. All of them have the same
participants and batches in a round. A period is `PERIOD` rounds, after which global probe rounds
repeat; the overhead of a method is the median over periods of its client-side time over FedAvg's,
with a bootstrap interval over periods.

    plain    one vehicle after the other, one thread, ordinary autograd (`fedwatt.engine.plain`);
             the probe is M (m+1) forward passes, as the paper writes it
    cpu      this simulator: all participants of a round, C, the probe by polynomials
    cuda     the same on a GPU, where there is one

Probes are due in global rounds, as the paper has them.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.engine import plain
from fedwatt.federation import Federation, Training
from fedwatt.federation.local_round import LocalRound
from fedwatt.federation.simulated import SimulatedBackend
from fedwatt.methods import Method, RoughnessProximal, get
from fedwatt.methods.roughness import unit
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model, get_model
from fedwatt.randomness import generator
from fedwatt.threads import threads
from fedwatt.windows import Fleet
from reproduction.cell import METHODS, Cell

PERIOD: Final = RoughnessProximal().probe_every
WARM_UP: Final = 2 * PERIOD
"""Rounds that are not timed: C is compiled, and every vehicle gets its first index."""
GATED: Final = "fo-ri-fedavg, gated"
PARTS: Final = ("training", "preconditioner", "probe", "spectral")
CONTENDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fedavg": {},
    "fo-fedavg": {},
    "ri-fedavg": {"probe_schedule": "global"},
    "fo-ri-fedavg": {"probe_schedule": "global"},
    GATED: {"probe_schedule": "global", "beta_kappa": 0.5},
}
"""Name → settings of its method."""
RESAMPLES: Final = 2000

OnRound = Callable[[int, int], None]
Turns = dict[str, list[list[float]]]
"""Contender → for each round the seconds of `PARTS`."""


def turns_cell(dataset: str) -> Cell:
    """Return the cell of a dataset whose record has the turns."""
    return Cell(dataset=dataset, method="fedavg", work="turns", purpose="time")


def contenders(probe: Mapping[str, Any]) -> dict[str, Method]:
    """Name → method; `probe` are settings of all that probe, such as a smaller probe's."""
    return {
        name: get(
            name.partition(",")[0], **settings, **(probe if "probe_schedule" in settings else {})
        )
        for name, settings in CONTENDERS.items()
    }


def measured(
    fleet: Fleet,
    participation: float,
    rounds: int,
    probe: Mapping[str, Any],
    on_round: OnRound = lambda done, of: None,
) -> dict[str, Any]:
    """Return turns on every engine that is here, and how busy the machine was."""
    methods = contenders(probe)
    before = os.getloadavg()
    engines = ("plain", "cpu", *(("cuda",) if torch.cuda.is_available() else ()))
    total = len(engines) * rounds
    turns = {}
    for place, engine in enumerate(engines):

        def follow(done: int, begun: int = place * rounds) -> None:
            on_round(begun + done, total)

        take = plain_turns if engine == "plain" else engine_turns
        trainings = federations(fleet, participation, engine)
        turns[engine] = take(trainings, methods, rounds, follow)
    return {
        "engines": turns,
        "rounds": rounds,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "cores": os.cpu_count(),
        "load": {"before": list(before), "after": list(os.getloadavg())},
    }


def timed_rounds(rounds: int) -> int:
    """Return whole periods of about twice as many rounds, and at least two.

    >>> timed_rounds(20), timed_rounds(4)
    (40, 10)
    """
    return PERIOD * max(2, 2 * rounds // PERIOD)


def federations(fleet: Fleet, participation: float, engine: str) -> dict[str, Federation]:
    """Return contender → its federation; all of them share one pool."""
    # Beyond the last round that is timed: evaluations are not what is measured.
    training = Training(rounds=10**6, evaluate_every=10**6, participation=participation)
    device = "cuda" if engine == "cuda" else "cpu"
    made = {n: Federation(fleet, training=training, seeds=(1,), device=device) for n in CONTENDERS}
    for federation in made.values():
        federation.share_pool(made["fedavg"])
    return made


def engine_turns(
    made: Mapping[str, Federation],
    methods: Mapping[str, Method],
    rounds: int,
    follow: Callable[[int], None],
) -> Turns:
    """Return turns of this simulator."""
    states = {name: federation.start(methods[name])[0] for name, federation in made.items()}
    seconds: Turns = {name: [] for name in made}
    for number in range(WARM_UP + rounds):
        for name in in_turn(list(made), number):
            states[name], record = made[name].advance(methods[name], states[name])
            if number >= WARM_UP:
                seconds[name].append([record.seconds.get(part, 0.0) for part in PARTS])
        follow(max(0, number + 1 - WARM_UP))
    return seconds


def plain_turns(
    made: Mapping[str, Federation],
    methods: Mapping[str, Method],
    rounds: int,
    follow: Callable[[int], None],
) -> Turns:
    """Return turns of a plain loop over one vehicle: the first that is called in a round."""
    vehicles = SimulatedBackend(made["fedavg"])
    seconds: Turns = {name: [] for name in made}
    states = {name: federation.start(methods[name])[0] for name, federation in made.items()}
    for number in range(WARM_UP, WARM_UP + rounds):
        # What is drawn for the round is the vehicle's own, and lies on the host before it begins.
        start = replace(states["fedavg"], round=number)
        first = vehicles.calls(start, vehicles.present(start))[:1]
        with threads(1):
            for name in in_turn(list(made), number):
                state = replace(states[name], round=number)
                method = methods[name]
                begun = SimulatedBackend(made[name]).begin(method, state, first, Stopwatch())
                steps, probe, spectral = plain_seconds(begun, method)
                is_due = number % PERIOD == 0
                seconds[name].append([steps, 0.0, probe if is_due else 0.0, spectral])
        follow(number + 1 - WARM_UP)
    return seconds


def plain_seconds(begun: LocalRound, method: Method) -> list[float]:
    """Return seconds of a vehicle's steps, of a probe and of κ, each on its own."""
    _ = begun.job.batches.tensors  # looked up before the clock starts
    probe = spectral = 0.0
    for rule in method.local:
        if isinstance(rule, RoughnessProximal):
            probe = _timed(lambda rule=rule: plain_probe(begun, rule))  # type: ignore[misc]
        elif getattr(rule, "beta_kappa", 0.0):
            spectral = _timed(lambda rule=rule: rule.begin({}, begun.start))  # type: ignore[misc]
    return [_timed(lambda: plain.train(begun.job)), probe, spectral]


def plain_probe(begun: LocalRound, rule: RoughnessProximal) -> Tensor:
    """Return the losses of all slices, one forward pass for each point: φ [M, m+1]."""
    start = begun.start
    model = begun.start.model
    batch = start.probe_batch(0, rule.probe_batch, "probe batch")
    weights = start.anchor[0]
    lines = unit(start.probe_directions(0, rule.directions)).to(weights.dtype)
    offsets = torch.linspace(-rule.radius, rule.radius, rule.points + 1).tolist()
    with torch.no_grad():
        losses = [
            start.loss(model.predict(weights + s * line, batch.windows), batch.labels).mean()
            for line in lines
            for s in offsets
        ]
    return torch.stack(losses).view(len(lines), -1)


def in_turn(names: Sequence[str], round: int) -> Iterator[str]:
    """Yield first to last in even rounds, last to first in odd ones.

    >>> [*in_turn(["a", "b"], 0), *in_turn(["a", "b"], 1)]
    ['a', 'b', 'b', 'a']
    """
    return iter(names) if round % 2 == 0 else reversed(names)


def overhead(turns: Mapping[str, Any], engine: str, name: str) -> tuple[float, float, float]:
    """Return a contender's median client-side overhead over FedAvg, and its interval."""
    method_seconds, base = (periods(turns["engines"][engine][each]) for each in (name, "fedavg"))
    ratios = method_seconds / base - 1
    draws = np.random.default_rng(0).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[draws], axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def periods(rounds: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return client-side seconds of each whole period.

    >>> periods([[1.0, 0.0, 2.0, 0.0], *[[1.0, 0.0, 0.0, 0.0]] * 4])
    array([7.])
    """
    seconds = np.asarray(rounds).sum(axis=1)
    return np.asarray(seconds[: len(seconds) // PERIOD * PERIOD].reshape(-1, PERIOD).sum(axis=1))


def part_seconds(turns: Mapping[str, Any], engine: str, name: str) -> dict[str, float]:
    """Return mean seconds a round by part."""
    rounds = np.asarray(turns["engines"][engine][name])
    return dict(zip(PARTS, rounds.mean(axis=0).tolist(), strict=True))


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


BATCHES = (1, 32)
LATENCY_WARM_UP: Final = 20


def latencies(features: int, window: int, windows: int) -> list[dict[str, float | int | str]]:
    """Return median and 95th percentile in ms a window, and windows a second at the median."""
    model = get_model("mlp", window=window, features=features)
    draws = generator(0, "latency", "windows").standard_normal((32, window, features))
    inputs = torch.from_numpy(draws).float()
    rows: list[dict[str, float | int | str]] = []
    with threads(1), torch.inference_mode():
        for method in METHODS:
            weights = model.initial(generator(0, "latency", method)).float()
            for batch in BATCHES:
                seconds = _seconds(model, weights, inputs[:batch], max(windows // batch, 10))
                median, p95 = np.quantile(seconds / batch, (0.5, 0.95))
                rows.append(
                    {
                        "method": method,
                        "batch": batch,
                        "median_ms": float(median * 1e3),
                        "p95_ms": float(p95 * 1e3),
                        "throughput": float(1 / median),
                    }
                )
    return rows


def _seconds(model: Model, weights: Tensor, batch: Tensor, repeats: int) -> NDArray[np.float64]:
    """Time of each forward pass, [repeats], after those to warm up."""
    seconds = np.empty(LATENCY_WARM_UP + repeats)
    for repeat in range(len(seconds)):
        begin = time.perf_counter()
        model.predict(weights, batch)
        seconds[repeat] = time.perf_counter() - begin
    return seconds[LATENCY_WARM_UP:]
