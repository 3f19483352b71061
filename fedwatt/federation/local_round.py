"""The vehicles' part of a round, from the broadcast to their update.

    rules begin        probe, plan                                  `begin_round`
    local steps        Δ_k of the stack, by any engine              `engine.together.train(job)`
    rules finish       next client state, uploads                   `finish_round`

A simulation trains all participants as one stack; a deployed vehicle is a stack of one.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw, Probes
from fedwatt.engine.job import Job
from fedwatt.engine.together import train
from fedwatt.errors import SettingError
from fedwatt.federation.participation import Call
from fedwatt.federation.work import Work, picked, recorded_columns
from fedwatt.methods import Method
from fedwatt.methods.rule import LocalRule, PersonalTraining, Rows, Start
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model
from fedwatt.threads import run_on_cores

if TYPE_CHECKING:
    from fedwatt.federation.federation import Federation


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The server's message at the start of a round, a row for each run or each of P vehicles."""

    round: int  # t
    weights: Tensor  # the model w_t, [P, D]
    sent: Rows  # what the server rule sends besides, each [P, ...]
    population: int  # K, all vehicles that may train
    population_windows: float  # n, their training windows
    vehicle_seed: int | None = None  # a deployed vehicle's secret seed for batches; None: the run's

    def to(self, device: torch.device) -> "Broadcast":
        """Return the message on another device."""
        sent = {name: value.to(device) for name, value in self.sent.items()}
        return replace(self, weights=self.weights.to(device), sent=sent)

    def of_runs(self, runs: Sequence[int]) -> "Broadcast":
        """Return the message for vehicles of these runs, from one with a row for each run."""
        weights = picked(self.weights, runs)
        sent = {name: on_device_of(value, weights)[runs] for name, value in self.sent.items()}
        return replace(self, weights=weights, sent=sent)


@dataclass(frozen=True, eq=False)
class LocalRound:
    """P vehicles whose rules have begun a round, before their first step."""

    calls: tuple[Call, ...]
    windows: list[int]  # n_k, [P]
    start: Start
    client_state: Rows
    job: Job


def in_stack_order(calls: Iterable[Call]) -> list[Call]:
    """Return the calls with the most steps first, the order of a stack."""
    return sorted(calls, key=lambda call: (-call.steps, call.run, call.vehicle))


def initial_client_state(method: Method, model: Model, weights: Tensor) -> Rows:
    """Return a vehicle's client state before its first round, with the precision of `weights`."""
    return {
        name: on_device_of(value, weights)
        for rule in method.local
        for name, value in rule.client_state(model).items()
    }


def on_device_of(value: Tensor, weights: Tensor) -> Tensor:
    """Return `value` on the device of `weights`; a vector of floats also in their precision."""
    vector = value.is_floating_point() and value.dim() >= 1
    return value.to(weights.device, weights.dtype if vector else value.dtype)


def begin_round(
    fleet: "Federation",
    method: Method,
    broadcast: Broadcast,
    client_state: Rows,
    calls: Sequence[Call],
    watch: Stopwatch,
    batches: Batches | None = None,
) -> LocalRound:
    """Let the rules probe and plan; rows of all arguments are in the order of `calls`.

    `batches` are those of the whole round, if they are drawn already.
    """
    windows = [fleet.members.windows(call.vehicle) for call in calls]
    called = _start(fleet, method, broadcast, calls, windows)
    start, client_state, plans = begin_rules(method.local, client_state, called, watch)
    if batches is None or start.begins_at is not None:
        taken = [0] * len(calls)
        if start.begins_at is not None:
            taken = (called.steps - start.steps).tolist()
        batches = batches_of(fleet, broadcast.round, calls, windows, broadcast.vehicle_seed, taken)
    job = Job(
        method.local,
        tuple(plans),
        start.model,
        start.loss,
        shifted(method.local, plans, start.origin),
        start.learning_rate,
        batches,
        fleet.terms.training.tf32,
        fleet.terms.training.deterministic,
        _path(method.local, calls, fleet.device),
    )
    return LocalRound(tuple(calls), windows, start, client_state, job)


def _path(rules: Sequence[LocalRule], calls: Sequence[Call], device: torch.device) -> Tensor | None:
    """Return zeros [P] to which steps add their lengths; None where no rule measures paths."""
    measured = any(rule.measures_path for rule in rules)
    return torch.zeros(len(calls), dtype=torch.float64, device=device) if measured else None


def batches_of(
    fleet: "Federation",
    round: int,
    calls: Sequence[Call],
    windows: Sequence[int],
    vehicle_seed: int | None = None,
    taken: Sequence[int] | None = None,
) -> Batches:
    """Return the batches of the vehicles of `calls`, from step `taken` to the last of each."""
    seeds = fleet.terms.seeds
    batch = fleet.terms.training.batch
    name = fleet.members.name
    draws = tuple(
        Draw(
            seeds[call.run] if vehicle_seed is None else vehicle_seed,
            round,
            name(call.vehicle),
            count,
            call.steps,
            batch,
            begin,
        )
        for call, count, begin in zip(calls, windows, taken or [0] * len(calls), strict=True)
    )
    return Batches(*fleet.pool_of([call.vehicle for call in calls]), draws)


def finish_round(method: Method, begun: LocalRound, deltas: Tensor) -> Work:
    """Return the updates of the vehicles after their last step, from Δ_k [P, D]."""
    start = replace(begun.start, path=begun.job.path)
    plans = begun.job.plans
    client_state, uploads = finish_rules(method.local, begun.client_state, plans, start, deltas)
    for rule, plan in zip(method.local, plans, strict=True):
        deltas = rule.reply(deltas, plan)
    if method.server.normalises:
        uploads["accumulation"] = accumulation(method.local, plans, start)
    columns = recorded_columns(method.local, plans)
    drift = lengths(deltas)
    columns["drift"] = drift.tolist()
    # A norm in float64 is finite where all numbers are; checking each number takes longer.
    finite = np.isfinite(columns["drift"])
    windows = np.array(begun.windows, dtype=np.float64)
    return Work(begun.calls, deltas, windows, finite, finite, client_state, uploads, columns)


def lengths(vectors: Tensor) -> Tensor:
    """Return ‖v‖ of vectors [P, D], shape [P], float64."""

    def norm(some: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(some, dim=-1, dtype=torch.float64)
        return norms

    if not vectors.is_cpu:
        return norm(vectors)
    # A few rows at a time on a processor: torch takes several times as long for many at once.
    few = max(16, 2**18 // max(1, vectors.shape[1]))
    return torch.cat(run_on_cores(norm, torch.split(vectors, few)))


def _start(
    fleet: "Federation",
    method: Method,
    broadcast: Broadcast,
    calls: Sequence[Call],
    windows: Sequence[int],
) -> Start:
    """Return the `Start` of the round for a stack of vehicles, with their draws for probing."""
    terms = fleet.terms
    model = method.adapted(fleet.model)
    device = fleet.device
    names = tuple(fleet.members.name(call.vehicle) for call in calls)
    held = fleet.pool_of([call.vehicle for call in calls])
    runs = [call.run for call in calls]
    probes = Probes(*held, names, runs, terms.seeds, broadcast.round, model)
    speeds = [terms.speed(call.run, name) for call, name in zip(calls, names, strict=True)]
    mean = broadcast.population / broadcast.population_windows
    return Start(
        round=broadcast.round,
        vehicles=names,
        learning_rate=terms.learning_rate(broadcast.round),
        anchor=broadcast.weights,
        broadcast=broadcast.sent,
        steps=torch.tensor([call.steps for call in calls], device=device),
        relative_size=torch.tensor(windows, dtype=torch.float64, device=device) * mean,
        speed=torch.tensor(speeds, dtype=torch.float64, device=device),
        model=model,
        loss=fleet.loss,
        probe_batch=probes.batch,
        fixed_batch=probes.fixed_batch,
        probe_directions=probes.directions,
        train=partial(_train_private, fleet, model, broadcast, calls),
        runs=runs,
        fastest=max(terms.availability.speeds),
    )


def _train_private(
    fleet: "Federation",
    model: Model,
    broadcast: Broadcast,
    calls: Sequence[Call],
    training: PersonalTraining,
) -> Tensor:
    """Return the displacement [P, D] of models that stay in their vehicles, trained as a stack."""
    steps = training.steps.tolist()
    deltas = torch.zeros_like(training.weights)
    windows = [fleet.members.windows(call.vehicle) for call in calls]
    moving = [row for row, count in enumerate(windows) if count]
    rows = sorted((row for row in moving if steps[row]), key=lambda row: -steps[row])
    if not rows:
        return deltas
    index = torch.tensor(rows, device=deltas.device)
    job = Job(
        training.rules,
        tuple(
            {name: v.index_select(0, index) for name, v in plan.items()} for plan in training.plans
        ),
        model,
        fleet.loss,
        training.weights.index_select(0, index),
        training.learning_rate,
        batches_of(
            fleet,
            broadcast.round,
            [calls[row]._replace(steps=steps[row]) for row in rows],
            [windows[row] for row in rows],
            broadcast.vehicle_seed,
        ),
        fleet.terms.training.tf32,
        fleet.terms.training.deterministic,
    )
    return deltas.index_copy(0, index, train(job))


def vehicle_models(
    fleet: "Federation",
    method: Method,
    broadcast: Broadcast,
    client_state: Rows,
    calls: Sequence[Call],
) -> Tensor:
    """Return the model [P, D] that each vehicle of `calls` would use after the last round.

    `broadcast` is the message that the server would send them now.
    """
    windows = [fleet.members.windows(call.vehicle) for call in calls]
    start = _start(fleet, method, broadcast, calls, windows)
    for rule in (rule for rule in method.local if rule.personalised):
        rule_state = {name: client_state[name] for name in rule.client_state(start.model)}
        with torch.no_grad():
            return rule.vehicle_model(rule_state, start)
    return start.anchor


def begin_rules(
    rules: Sequence[LocalRule], client_state: Rows, start: Start, watch: Stopwatch
) -> tuple[Start, Rows, list[Rows]]:
    """Let every rule probe and plan: return (start, client states, plan of each rule).

    The start returned has the origin at which a rule lets the vehicles begin.
    """
    plans_so_far = []
    plans = []
    states = [
        {name: client_state[name] for name in rule.client_state(start.model)} for rule in rules
    ]
    for rule, rule_state in zip(rules, states, strict=True):
        with watch.section("training"), torch.no_grad():
            origin = rule.origin(rule_state, start)
        plans_so_far.append({} if origin is None else origin.plan)
        if origin is not None:
            steps = start.steps - origin.taken
            start = replace(start, begins_at=origin.weights, steps=steps)
    for rule, plan, rule_state in zip(rules, plans_so_far, states, strict=True):
        with watch.section(rule.begin_timed_as), torch.no_grad():
            begun_state, planned = rule.begin(rule_state, start)
        _refuse_other_state(rule, "begin", begun_state, rule_state.keys())
        client_state = client_state | begun_state
        plans.append(plan | planned)
        _refuse_other_rows(rule, plans[-1], len(start.steps))
    return start, client_state, plans


def _refuse_other_state(rule: LocalRule, part: str, rule_state: Rows, declared: Set[str]) -> None:
    """Refuse a client state returned by `part` of a rule unless it has the `declared` names."""
    for name in sorted(rule_state.keys() ^ declared):
        raise SettingError(
            f"{type(rule).__name__} returns '{name}' from `{part}` and does not name it in "
            "`client_state`. Name it there, with its value before the first round, or leave it out."
            if name in rule_state
            else f"{type(rule).__name__} names '{name}' in `client_state` and does not return it "
            f"from `{part}`. Return client_state | {{...}}, which has what does not change."
        )


def _refuse_other_rows(rule: LocalRule, plan: Rows, vehicles: int) -> None:
    """Refuse a plan whose entries are not tensors with a row for each vehicle."""
    for name, value in plan.items():
        if not isinstance(value, Tensor) or value.shape[:1] != (vehicles,):
            actual = f"of shape {list(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
            raise SettingError(
                f"{type(rule).__name__} plans '{name}', which is {actual}. Let `begin` return a "
                f"tensor with a row for each vehicle, [P, ...] with P = {vehicles} here, such as "
                "torch.full_like(start.speed, 0.1)."
            )


def shifted(rules: Sequence[LocalRule], plans: Sequence[Rows], anchor: Tensor) -> Tensor:
    """Return the weights [P, D] at which training starts: `anchor` plus the rules' shifts."""
    for rule, plan in zip(rules, plans, strict=True):
        shift = rule.shift(plan)
        anchor = anchor if shift is None else anchor + shift
    return anchor


def finish_rules(
    rules: Sequence[LocalRule],
    client_state: Rows,
    plans: Sequence[Rows],
    start: Start,
    deltas: Tensor,
) -> tuple[Rows, Rows]:
    """Let every rule finish the round: return (client states, uploads)."""
    uploads: Rows = {}
    start = replace(start, accumulation=accumulation(rules, plans, start))
    for rule, plan in zip(rules, plans, strict=True):
        rule_state = {name: client_state[name] for name in rule.client_state(start.model)}
        declared = rule_state.keys()
        rule_state, rule_uploads = rule.finish(rule_state, plan, start, deltas)
        _refuse_other_state(rule, "finish", rule_state, declared)
        for name in rule.uploads(start.model):
            if name not in rule_uploads:
                raise SettingError(
                    f"{type(rule).__name__} names '{name}' in `uploads` and does not return it. "
                    "Let `finish` return it in its second part or, without a `finish`, `begin` in "
                    "the plan: a row for each vehicle, [P, ...]."
                )
        client_state = client_state | rule_state
        uploads |= rule_uploads
    return client_state, uploads


def accumulation(rules: Sequence[LocalRule], plans: Sequence[Rows], start: Start) -> Tensor:
    """Return ‖a_k‖₁ of every vehicle, [P], float64, by which FedNova divides."""
    weights = (rule.accumulation(start, plan) for rule, plan in zip(rules, plans, strict=True))
    return next((a for a in weights if a is not None), start.steps.double())
