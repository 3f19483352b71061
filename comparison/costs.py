"""Cost of a candidate beside FedAvg, and the round at which it has cost as much as FedAvg.

Bytes are the numbers that a participant receives and sends (`fedwatt.methods.method`). Compute is
the measured time of a round beside FedAvg's (results/method_costs.json); a composition's is
FedAvg's with the excess of each of its parts, and roughness probes are added at the rate at which
the age rule makes them.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from comparison.candidates import ALONE, CANDIDATES, Candidate
from comparison.datasets import DATASETS
from comparison.plan import Plan
from fedwatt.methods import METHODS
from fedwatt.methods.method import costs
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.models import Model

MEASURED: Final = Path(__file__).resolve().parents[1] / "results" / "method_costs.json"
PARTS: Final = {
    "sharpness": "si-fedavg",
    "sharpness-aware": "sam",
    "global-shift": "lesam",
    "fractional": "fo-fedavg",
    "personal-model": "ditto",
    "proximal": "fedprox",
    "roughness": "ri-fedavg",
}
"""Local rules, each with the method that has it alone."""
BASES: Final = ("rounds", "bytes", "compute")
"""What is held equal in a comparison."""
SLACK: Final = 1.05
"""A method may cost so many times FedAvg's total and still count as equal: measured times repeat to
about 5 %, as those of FedNova show, which does FedAvg's work."""


@dataclass(frozen=True)
class Multiples:
    """Costs of a participant's round in multiples of FedAvg's."""

    bytes: float
    compute: float


def multiples(candidate: Candidate, model: Model, plan: Plan, participation: float) -> Multiples:
    """Costs of a candidate in multiples of FedAvg's; vehicles alone count like FedAvg's."""
    if candidate.name == ALONE:
        return Multiples(1.0, 1.0)
    cost = costs(candidate.made(), model)
    plain = costs(CANDIDATES["fedavg"].made(), model)
    sent = (cost.up + cost.down) / (plain.up + plain.down)
    return Multiples(sent, compute(candidate, plan, participation))


def compute(candidate: Candidate, plan: Plan, participation: float) -> float:
    """Time of a participant's round in multiples of FedAvg's, by what was measured last."""
    if candidate.name == ALONE:
        return 1.0
    return _time(candidate) + _probes(candidate, plan, participation)


def matched_rounds(multiples_of_fedavg: Multiples, plan: Plan) -> dict[str, int]:
    """Return the last evaluated round at which a method has cost at most FedAvg's total.

    A candidate so dear that it cannot pay for the first evaluated round is evaluated there.

    >>> matched_rounds(Multiples(2.0, 1.14), Plan(rounds=60, every=5))
    {'rounds': 60, 'bytes': 30, 'compute': 55}
    """
    paid = {
        "rounds": 1.0,
        "bytes": multiples_of_fedavg.bytes,
        "compute": multiples_of_fedavg.compute,
    }

    def last(times: float) -> int:
        paid_for = [at for at in plan.evaluated if at * times <= SLACK * plan.rounds]
        return max(paid_for, default=plan.evaluated[0])

    return {basis: last(times) for basis, times in paid.items()}


def costed_today(record: dict[str, Any]) -> dict[str, Any]:
    """Return a run's record with its compute, and the rounds that it pays for, by today's
    measurements.

    So records that were run at different times are charged alike.
    """
    if "costs" not in record:
        return record
    candidate = CANDIDATES[record["method"]]
    plan = Plan.of(record["plan"])
    measured_costs = Multiples(
        record["costs"]["bytes"],
        compute(candidate, plan, DATASETS[record["dataset"]].participation),
    )
    return record | {
        "costs": asdict(measured_costs),
        "matched": matched_rounds(measured_costs, plan),
    }


def _time(candidate: Candidate) -> float:
    times: dict[str, float] = _measured()["times_fedavg"]
    names = (candidate.method or candidate.name).partition("@")[0].split("+")
    measured_names = [name if name in METHODS else PARTS.get(name, "fedavg") for name in names]
    return 1.0 + sum(max(times[name], 1.0) - 1.0 for name in measured_names)


def _probes(candidate: Candidate, plan: Plan, participation: float) -> float:
    """Probes a participation, in rounds of FedAvg."""
    rough = [rule for rule in candidate.made().local if isinstance(rule, RoughnessProximal)]
    if not rough:
        return 0.0
    rule = rough[0]
    usual = RoughnessProximal()
    share = 1 / (participation * (rule.probe_every - 1) + 1)
    # Measured was the usual probe, whose forward passes are these many.
    size = rule.directions * (rule.points + 1) / (usual.directions * (usual.points + 1))
    return float(share * size * _measured()["probe_in_steps"] / plan.steps)


@cache
def _measured() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return record
