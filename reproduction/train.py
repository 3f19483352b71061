"""Carry out a cell: a federation, every vehicle alone, or all data in one place.

The length of fractional steps (`eq:frac_precond`) is measured on the way: from models that the
training passed, the local steps of that round are taken again, and the length ‖p ⊙ g‖ of each is
compared with ‖g‖. FedAvg at the learning rate times their ratio takes steps of the same mean
length: what FO gains beyond it is due to the shape of its steps, not to their size.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine import plain
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.pool import resolve_device
from fedwatt.federation import Federation, History, RoundRecord, State
from fedwatt.federation.federation import train_side_by_side
from fedwatt.federation.participation import participant_count, participants
from fedwatt.federation.records import Evaluation
from fedwatt.methods import Fractional, Method, RoughnessProximal, get
from fedwatt.methods.rule import LocalRule, Rows, scheduled
from fedwatt.metrics import micro
from fedwatt.runs.provenance import describe_fleet, provenance
from fedwatt.runs.simulation import federation_for
from fedwatt.windows import SPLITS, Client, Fleet
from reproduction.cell import Cell, run_config
from reproduction.record import (
    CORE_SECONDS,
    FLAT,
    MADE_WITH,
    REACH,
    ROUNDS,
    TIMING,
    VEHICLES,
    Record,
    columns_of,
)
from reproduction.scale import Scale
from reproduction.timing import latencies, measured, timed_rounds

STEPS = 60
"""Steps of a round that are measured: the scale settles within a few."""


@dataclass(frozen=True, kw_only=True)
class Measured(LocalRule):
    """Takes the steps of a fractional rule, without its gate, and notes how long they are."""

    rule: Fractional
    steps: list[tuple[float, float, float]] = field(default_factory=list)
    """(‖g‖, ‖p ⊙ g‖, mean of p) of each step after the first of a round."""

    looks_back: ClassVar[bool] = True

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return g ⊙ p, noted; the first step of a round is plain."""
        if previous is None:
            return gradient
        p = self.rule.scale(weights - previous)
        scaled = gradient * p
        self.steps.append((float(gradient.norm()), float(scaled.norm()), float(p.mean())))
        return scaled


def step_scale(
    federation: Federation, method: Method, models: Mapping[int, Tensor]
) -> dict[str, float]:
    """Return means over steps h ≥ 1 of the first seed's participants: `length` Σ‖p⊙g‖/Σ‖g‖ and
    `coordinate`, the mean of p; `models` maps a round to the models [R, D] it started from.

    Only the fractional rule is applied: a pull is far weaker than the gradient.
    """
    (rule,) = (r for r in method.local if isinstance(r, Fractional))
    measured = Measured(rule=rule)
    for at, weights in models.items():
        _train(federation, measured, at, weights[:1, : federation.model.layout.size])
    if not measured.steps:
        return {}
    plain_length, length, coordinate = np.array(measured.steps).T
    return {
        "length": float(length.sum() / plain_length.sum()),
        "coordinate": float(coordinate.mean()),
    }


def _train(federation: Federation, rule: Measured, at: int, broadcast: Tensor) -> None:
    """Take the first steps of round `at`, vehicle by vehicle, from the model [1, D]."""
    training = federation.training
    seed = federation.seeds[0]
    everyone = np.ones(len(federation.members.population), dtype=bool)
    learning_rate = scheduled(training.learning_rate, training.schedule, at)
    for position in participants(seed, at, everyone, training.participation).tolist():
        vehicle = int(federation.members.population[position])
        name = federation.fleet.names[vehicle]
        windows = federation.pool.train.count(vehicle)
        steps = min(STEPS, training.epochs * -(-windows // training.batch))
        draw = Draw(seed, at, name, windows=windows, end=steps, batch=training.batch)
        batches = Batches(federation.pool, [vehicle], [draw])
        task = (federation.model, federation.loss)
        plain.train(Job((rule,), ({},), *task, broadcast, learning_rate, batches))


OnRound = Callable[[int, int], None]
"""Called with (rounds done, all rounds)."""

HistoryRows = list[dict[str, Any]]

Lost = dict[int, int]
"""Place of a diverged seed → the round in which it did."""


def is_timing(cell: Cell) -> bool:
    """Return whether a cell measures the time of this machine."""
    return cell.purpose == "time" or cell.work in ("latency", "turns")


def train_group(
    cells: Sequence[Cell], scale: Scale, fleet: Fleet, device: str, on_round: OnRound
) -> list[Record]:
    """Return the records of cells that train in one stack; only federated ones share one."""
    if cells[0].work != "federated":
        return [_unfederated(cell, scale, fleet, device, on_round) for cell in cells]
    methods = [cell.choice(scale).method for cell in cells]
    federations = [_federation(cell, scale, fleet, device) for cell in cells]
    seen: list[dict[int, Tensor]] = [{} for _ in cells]
    due = [_milestones(*training) for training in zip(cells, methods, federations, strict=True)]

    def follow(place: int, state: State, record: RoundRecord) -> None:
        if state.round in due[place]:
            seen[place][state.round] = state.weights
        if place == 0:
            on_round(state.round, federations[0].training.rounds)

    begin = time.process_time()
    if len(cells) == 1:
        trained = [federations[0].train(methods[0], on_round=partial(follow, 0))]
    else:
        pairs = list(zip(federations, methods, strict=True))
        trained = train_side_by_side(pairs, on_round=follow)
    described = _facts(fleet)
    records = []
    for place, cell in enumerate(cells):
        facts = {"fleet": described} | _device_facts(federations[place])
        if seen[place]:
            facts["step_scale"] = step_scale(federations[place], methods[place], seen[place])
        if len(cells) == 1 and facts["device"] == "cpu":
            facts[CORE_SECONDS] = round(time.process_time() - begin, 2)
        records.append(_record(cell, scale, methods[place], facts, trained[place].history))
    return records


def _unfederated(cell: Cell, scale: Scale, fleet: Fleet, device: str, on_round: OnRound) -> Record:
    """Return the record of a baseline without federation, or of times."""
    facts: dict[str, Any] = {"fleet": _facts(fleet)}
    rows: HistoryRows = []
    if cell.work == "latency":
        facts["latency"] = latencies(len(fleet.features), fleet.window, scale.latency_windows)
        facts |= {"device": "cpu", MADE_WITH: provenance(torch.device("cpu"))}
    else:
        federation = _federation(cell, scale, fleet, device)
        facts |= _device_facts(federation)
    if cell.work == "turns":
        rounds = timed_rounds(scale.timing_rounds)
        probe = dict(scale.probe)
        facts["turns"] = measured(fleet, cell.participation, rounds, probe, on_round)
    elif cell.work == "local":
        rows = _alone(federation, on_round)
    elif cell.work == "pooled":
        rows = _pooled(federation, on_round)
    return Record(cell, facts, columns_of(rows, ROUNDS), columns_of([], VEHICLES))


def _federation(cell: Cell, scale: Scale, fleet: Fleet, device: str) -> Federation:
    """Return the federation of a cell; on a processor any mode gives the same bits."""
    config = run_config(cell, scale, device)
    if scale.deterministic and resolve_device(device).type == "cuda":
        config = replace(config, training=replace(config.training, deterministic=True))
    return federation_for(config, cell.choice(scale), fleet)


def _milestones(cell: Cell, method: Method, federation: Federation) -> set[int]:
    """Return rounds whose models the scale of fractional steps is measured from."""
    fractional = any(isinstance(rule, Fractional) and rule.alpha < 1 for rule in method.local)
    rounds = federation.training.rounds
    return {1, rounds // 3, 2 * rounds // 3} if fractional and cell.purpose == "result" else set()


def _record(
    cell: Cell, scale: Scale, method: Method, facts: dict[str, Any], history: History
) -> Record:
    """Return the record: of trials both ends, of results evaluated rounds and those near 200.

    The round in which a seed diverged is kept whichever it is, and is the last one of that seed.
    """
    rounds = {row["round"] for row in history.rounds}
    last = max(rounds)
    near = scale.at(200)
    every = run_config(cell, scale).training.evaluate_every
    recorded_rounds = {0, last}
    if cell.purpose == "result":
        recorded_rounds |= {r for r in rounds if r % every == 0 or abs(r - near) <= REACH}
    replies: HistoryRows = []
    if any(isinstance(rule, RoughnessProximal) for rule in method.local):
        answered = [row for row in history.clients if row["replied"]]
        facts["pull"] = float(np.mean([row["pull"] for row in answered]))
        index = np.array([row["roughness"] for row in answered])
        facts["flat"] = float((index < FLAT).mean())
        # The coupling of roughness and drift is judged where all vehicles take part.
        replies = answered if cell.participation == 1.0 else []
    return Record(
        cell,
        facts,
        columns_of(_rows_of(history.rounds, recorded_rounds), ROUNDS),
        columns_of(replies, VEHICLES),
        columns_of(history.timing[1:], TIMING) if cell.purpose == "time" else {},
    )


def _rows_of(rows: HistoryRows, rounds: set[int]) -> HistoryRows:
    return [row for row in rows if row["round"] in rounds or row["diverged"]]


def _alone(federation: Federation, on_round: OnRound) -> HistoryRows:
    """Return every vehicle trains by itself, as many rounds as a federation would ask it for."""
    training = federation.training
    rounds = max(1, round(training.rounds * training.participation))
    every = max(1, round(training.evaluate_every * training.participation))
    due = {r for r in range(rounds + 1) if r % every == 0} | {rounds}
    evaluations: dict[int, list[list[Evaluation]]] = {r: [] for r in sorted(due)}
    lost: Lost = {}
    for place, client in enumerate(federation.fleet.clients):
        single = Federation(
            replace(federation.fleet, clients=(client,)),
            federation.model,
            training=replace(training, rounds=rounds, participation=1.0, evaluate_every=rounds),
            seeds=federation.seeds,
            device=str(federation.device.type),
        )

        def follow(state: State, record: RoundRecord, single: Federation = single) -> None:
            if state.round in due:
                evaluations[state.round].append(single.evaluate(state.weights))

        trained = single.train("fedavg", on_round=follow)
        state, _ = single.start(get("fedavg"))
        evaluations[0].append(single.evaluate(state.weights))
        for run, at in _lost(trained.state).items():
            lost[run] = min(at, lost.get(run, at))
        for r in due:  # all runs of this vehicle have diverged: a place that is never read
            if len(evaluations[r]) == place:
                evaluations[r].append(single.evaluate(trained.state.weights))
        on_round(place + 1, len(federation.fleet.clients))
    merged = {
        r: [_together([runs[run] for runs in per_vehicle]) for run in range(len(federation.seeds))]
        for r, per_vehicle in evaluations.items()
    }
    return _rows(federation.seeds, merged, lost)


def _pooled(federation: Federation, on_round: OnRound) -> HistoryRows:
    """Return one model on all windows in one place: as many steps as all participants together."""
    training = federation.training
    participants = participant_count(len(federation.members.population), training.participation)
    per_vehicle = (
        federation.members.population_windows / len(federation.members.population) / training.batch
    )
    pooled = Federation(
        replace(federation.fleet, clients=(pooled_client(federation.fleet.clients),)),
        federation.model,
        training=replace(
            training,
            participation=1.0,
            steps=max(1, round(participants * per_vehicle)),
            evaluate_every=training.rounds,
        ),
        seeds=federation.seeds,
        device=str(federation.device.type),
    )
    start, _ = pooled.start(get("fedavg"))
    evaluations = {0: federation.evaluate(start.weights)}

    def follow(state: State, record: RoundRecord) -> None:
        if state.round % training.evaluate_every == 0 or state.round == training.rounds:
            evaluations[state.round] = federation.evaluate(state.weights)
        on_round(state.round, training.rounds)

    trained = pooled.train("fedavg", on_round=follow)
    lost = _lost(trained.state)
    evaluations.setdefault(training.rounds, federation.evaluate(trained.state.weights))
    return _rows(federation.seeds, evaluations, lost)


def pooled_client(clients: Sequence[Client]) -> Client:
    """Return all vehicles' windows as one client's; each was scaled by its own vehicle before."""
    starts = np.cumsum([0, *(len(client.series) for client in clients)])
    return replace(
        clients[0],
        name="pooled",
        series=np.concatenate([client.series for client in clients]),
        ends={
            split: np.concatenate(
                [client.ends[split] + at for client, at in zip(clients, starts[:-1], strict=True)]
            )
            for split in SPLITS
        },
        labels={split: np.concatenate([c.labels[split] for c in clients]) for split in SPLITS},
        strata={},
    )


def _lost(state: State) -> Lost:
    """Return runs that diverged."""
    return {run: int(at) for run, at in enumerate(state.diverged.tolist()) if at}


def _rows(
    seeds: Sequence[int], evaluations_by_round: dict[int, list[Evaluation]], lost: Lost
) -> HistoryRows:
    rows: HistoryRows = []
    for at, evaluations in evaluations_by_round.items():
        for run, (seed, evaluation) in enumerate(zip(seeds, evaluations, strict=True)):
            test = micro(evaluation.test)
            scores = {
                "validation_rmse": micro(evaluation.validation).rmse,
                "test_rmse": test.rmse,
                "test_mae": test.mae,
                "test_mape": test.mape,
                "test_wmape": test.wmape,
            }
            diverged = run in lost and at >= lost[run]
            rows.append(
                {"seed": seed, "round": at, "participants": 0, "steps": 0, "best_round": 0}
                | (dict.fromkeys(scores, nan) if diverged else scores)
                | {"diverged": diverged}
            )
    return rows


def _together(parts: Sequence[Evaluation]) -> Evaluation:
    return Evaluation(
        [sums for part in parts for sums in part.validation],
        [sums for part in parts for sums in part.test],
    )


def _facts(fleet: Fleet) -> dict[str, Any]:
    described = describe_fleet(fleet) | {"hash": fleet.data_hash()}
    del described["held_out"]
    return described


def _device_facts(federation: Federation) -> dict[str, Any]:
    made = provenance(federation.device, deterministic=federation.training.deterministic)
    return {"device": made["device"], "weights": federation.model.layout.size, MADE_WITH: made}
