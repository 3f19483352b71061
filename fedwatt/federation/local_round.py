"""What vehicles do between a broadcast and their reply.

    rules begin        probe, plan                                  `begin_round`
    local steps        Δ_k of the stack, by any engine              `engine.together.train(job)`
    rules finish       remember, hand up                            `finish_round`

A simulation takes all participants through it as one stack, a vehicle on the road itself as a stack
of one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.call import Call
from fedwatt.engine.job import Job
from fedwatt.engine.probing import Probes
from fedwatt.federation.local_fleet import LocalFleet
from fedwatt.federation.work import Work, recorded_columns
from fedwatt.methods import Method
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the P vehicles of a stack hear from the server when a round begins."""

    round: int  # t
    weights: Tensor  # the model w_t that each of them starts from, [P, D]
    sent: Rows  # what the server rule sends besides, each [P, ...]
    population: int  # K, all vehicles that may train
    population_windows: float  # n, their training windows


@dataclass(frozen=True, eq=False)
class LocalRound:
    """P vehicles whose rules have begun a round, before their first step."""

    calls: tuple[Call, ...]
    start: Start
    memory: Rows
    job: Job


def in_stack_order(calls: Iterable[Call]) -> list[Call]:
    """Those with the most steps first, as a stack wants them."""
    return sorted(calls, key=lambda call: (-call.steps, call.run, call.vehicle))


def initial_memory(method: Method, model: Model, weights: Tensor) -> Rows:
    """What a vehicle remembers before its first round, as `like` the weights of its model."""
    return {
        name: like(value, weights)
        for rule in method.local
        for name, value in rule.memory(model).items()
    }


def like(value: Tensor, weights: Tensor) -> Tensor:
    """`value` on the device of `weights`, and a vector of numbers in their precision, too."""
    vector = value.is_floating_point() and value.dim() >= 1
    return value.to(weights.device, weights.dtype if vector else value.dtype)


def begin_round(
    fleet: LocalFleet,
    method: Method,
    broadcast: Broadcast,
    memory: Rows,
    calls: Sequence[Call],
    watch: Stopwatch,
) -> LocalRound:
    """Let the rules probe and plan; rows of all arguments are in the order of `calls`."""
    start = _start(fleet, method, broadcast, calls)
    memory, plans = begin_rules(method.local, memory, start, watch)
    terms = fleet.terms
    draws = tuple(
        Draw(
            terms.seeds[call.run],
            broadcast.round,
            name,
            windows=fleet.members.windows(call.vehicle),
            end=call.steps,
            batch=terms.training.batch,
        )
        for call, name in zip(calls, start.vehicles, strict=True)
    )
    job = Job(
        method.local,
        tuple(plans),
        start.model,
        start.loss,
        shifted(method.local, plans, start.anchor),
        start.rate,
        Batches(fleet.pool, [call.vehicle for call in calls], draws),
        terms.training.tf32,
    )
    return LocalRound(tuple(calls), start, memory, job)


def finish_round(fleet: LocalFleet, method: Method, begun: LocalRound, deltas: Tensor) -> Work:
    """What the vehicles hand in after their last step, with Δ_k [P, D]."""
    start, plans = begun.start, begun.job.plans
    fleet.pool.release()
    memory, uploads = finish_rules(method.local, begun.memory, plans, start, deltas)
    for rule, plan in zip(method.local, plans, strict=True):
        deltas = rule.reply(deltas, plan)
    if method.server.normalises:
        uploads["accumulation"] = accumulation(method.local, plans, start)
    columns = recorded_columns(method.local, plans)
    drift = torch.linalg.vector_norm(deltas, dim=-1, dtype=torch.float64)
    columns["drift"] = drift.tolist()
    # A norm in float64 is finite where all numbers are, and reading them again takes longer.
    finite = drift.isfinite().cpu().numpy()
    windows = np.array([float(fleet.members.windows(call.vehicle)) for call in begun.calls])
    return Work(begun.calls, deltas, windows, finite, finite, memory, uploads, columns)


def _start(fleet: LocalFleet, method: Method, broadcast: Broadcast, calls: Sequence[Call]) -> Start:
    """The round as the stacked vehicles see it, with their own random draws for probing."""
    terms, model, device = fleet.terms, method.adapted(fleet.model), fleet.device
    names = tuple(fleet.members.name(call.vehicle) for call in calls)
    probes = Probes(fleet.pool, fleet.fleet, terms.seeds, broadcast.round, calls, model)
    sizes = [float(fleet.members.windows(call.vehicle)) for call in calls]
    speeds = [terms.speed(call.run, name) for call, name in zip(calls, names, strict=True)]
    mean = broadcast.population / broadcast.population_windows
    return Start(
        round=broadcast.round,
        vehicles=names,
        rate=terms.rate(broadcast.round),
        anchor=broadcast.weights,
        broadcast=broadcast.sent,
        steps=torch.tensor([call.steps for call in calls], device=device),
        relative_size=torch.tensor(sizes, dtype=torch.float64, device=device) * mean,
        speed=torch.tensor(speeds, dtype=torch.float64, device=device),
        model=model,
        loss=fleet.loss,
        probe_batch=probes.batch,
        probe_directions=probes.directions,
        fastest=max(terms.availability.speeds),
    )


def begin_rules(
    rules: Sequence[LocalRule], memory: Rows, start: Start, watch: Stopwatch
) -> tuple[Rows, list[Rows]]:
    """Let every rule probe and plan: (the vehicles' memory afterwards, a plan for each rule)."""
    plans = []
    for rule in rules:
        own = {name: memory[name] for name in rule.memory(start.model)}
        with watch.section(rule.begin_timed_as), torch.no_grad():
            own, plan = rule.begin(own, start)
        memory = memory | own
        plans.append(plan)
    return memory, plans


def shifted(rules: Sequence[LocalRule], plans: Sequence[Rows], anchor: Tensor) -> Tensor:
    """The weights [P, D] that training runs from: w_t, moved by the rules' shifts."""
    for rule, plan in zip(rules, plans, strict=True):
        shift = rule.shift(plan)
        anchor = anchor if shift is None else anchor + shift
    return anchor


def finish_rules(
    rules: Sequence[LocalRule], memory: Rows, plans: Sequence[Rows], start: Start, deltas: Tensor
) -> tuple[Rows, Rows]:
    """Let every rule close the round: (the vehicles' memory afterwards, what they hand up)."""
    uploads: Rows = {}
    start = replace(start, accumulation=accumulation(rules, plans, start))
    for rule, plan in zip(rules, plans, strict=True):
        own = {name: memory[name] for name in rule.memory(start.model)}
        own, handed_up = rule.finish(own, plan, start, deltas)
        memory = memory | own
        uploads |= handed_up
    return memory, uploads


def accumulation(rules: Sequence[LocalRule], plans: Sequence[Rows], start: Start) -> Tensor:
    """‖a_k‖₁ of every vehicle, [P], float64: what FedNova divides by."""
    found = (rule.accumulation(start, plan) for rule, plan in zip(rules, plans, strict=True))
    return next((a for a in found if a is not None), start.steps.double())
