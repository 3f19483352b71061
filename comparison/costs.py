"""What an entry costs beside FedAvg, and the round up to which it costs as much as FedAvg does.

Bytes are the numbers that a participant receives and sends (`fedwatt.methods.costs`). Compute is
the measured time of a round beside FedAvg's (results/method_costs.json); a composition's is
FedAvg's with the excess of each of its parts, and roughness probes are added at the rate at which
the age rule makes them.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from comparison.entries import ALONE, ENTRIES, Entry
from comparison.fleets import ARENAS
from comparison.plan import Plan
from fedwatt.methods import METHODS
from fedwatt.methods.costs import costs
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.models import Model

MEASURED: Final = Path(__file__).resolve().parents[1] / "results" / "method_costs.json"
PARTS: Final = {
    "sharpness": "si-fedavg",
    "sharpness-aware": "sam",
    "global-shift": "lesam",
    "fractional": "fo-fedavg",
    "own-model": "ditto",
    "proximal": "fedprox",
    "roughness": "ri-fedavg",
}
"""Local rules, each with the method that has it alone."""
BASES: Final = ("rounds", "bytes", "compute")
"""What is held equal in a comparison."""
SLACK: Final = 1.05
"""An entry may cost so many times FedAvg's total and still count as equal: measured times repeat to
about 5 %, as those of FedNova show, which does FedAvg's work."""


@dataclass(frozen=True)
class Multiples:
    """Costs of a participant's round in multiples of FedAvg's."""

    bytes: float
    compute: float


def multiples(entry: Entry, model: Model, plan: Plan, participation: float) -> Multiples:
    """Costs of an entry in multiples of FedAvg's; vehicles alone count like FedAvg's."""
    if entry.name == ALONE:
        return Multiples(1.0, 1.0)
    own, plain = costs(entry.made(), model), costs(ENTRIES["fedavg"].made(), model)
    sent = (own.up + own.down) / (plain.up + plain.down)
    return Multiples(sent, compute(entry, plan, participation))


def compute(entry: Entry, plan: Plan, participation: float) -> float:
    """Time of a participant's round in multiples of FedAvg's, by what was measured last."""
    if entry.name == ALONE:
        return 1.0
    return _time(entry) + _probes(entry, plan, participation)


def matched_rounds(found: Multiples, plan: Plan) -> dict[str, int]:
    """The last evaluated round by which an entry has cost at most what FedAvg costs in all rounds.

    An entry so dear that it cannot pay for the first evaluated round is judged there.

    >>> matched_rounds(Multiples(2.0, 1.14), Plan(rounds=60, every=5))
    {'rounds': 60, 'bytes': 30, 'compute': 55}
    """
    paid = {"rounds": 1.0, "bytes": found.bytes, "compute": found.compute}

    def last(times: float) -> int:
        paid_for = [at for at in plan.evaluated if at * times <= SLACK * plan.rounds]
        return max(paid_for, default=plan.evaluated[0])

    return {basis: last(times) for basis, times in paid.items()}


def costed_today(record: dict[str, Any]) -> dict[str, Any]:
    """A match's record with its compute, and the rounds that it pays for, by today's measurements.

    So records that were played at different times are charged alike.
    """
    if "costs" not in record:
        return record
    entry, plan = ENTRIES[record["entry"]], Plan.of(record["plan"])
    found = Multiples(
        record["costs"]["bytes"], compute(entry, plan, ARENAS[record["arena"]].participation)
    )
    return record | {"costs": asdict(found), "matched": matched_rounds(found, plan)}


def _time(entry: Entry) -> float:
    times: dict[str, float] = _measured()["times_fedavg"]
    names = (entry.method or entry.name).partition("@")[0].split("+")
    known = [name if name in METHODS else PARTS.get(name, "fedavg") for name in names]
    return 1.0 + sum(max(times[name], 1.0) - 1.0 for name in known)


def _probes(entry: Entry, plan: Plan, participation: float) -> float:
    """Probes a participation, in rounds of FedAvg."""
    rough = [rule for rule in entry.made().local if isinstance(rule, RoughnessProximal)]
    if not rough:
        return 0.0
    own, usual = rough[0], RoughnessProximal()
    share = 1 / (participation * (own.probe_every - 1) + 1)
    # Measured was the usual probe, whose forward passes are these many.
    size = own.directions * (own.points + 1) / (usual.directions * (usual.points + 1))
    return float(share * size * _measured()["probe_in_steps"] / plan.steps)


@cache
def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found
