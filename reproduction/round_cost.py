"""What a round costs a participant, in multiples of FedAvg's: bytes and compute.

Bytes are the numbers that a method's rules declare to send and to receive. Compute is the time of
its steps, measured with the methods in turns (`results/method_costs.json`), and that of roughness
probes: all participants of every R-th round, and whoever has no index yet.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from fedwatt.methods import RoughnessProximal, get
from fedwatt.methods.costs import costs
from fedwatt.models import get_model
from fedwatt.windows import DataSettings
from reproduction.cell import run_config
from reproduction.record import Record
from reproduction.scale import Scale
from reproduction.settle import reduced_to

MEASURED: Final = Path(__file__).resolve().parents[1] / "results" / "method_costs.json"


@dataclass(frozen=True)
class RoundCost:
    """A participant's round in multiples of FedAvg's."""

    bytes: float
    compute: float


def round_cost(record: Record, scale: Scale) -> RoundCost:
    """What a round of a recorded training costs.

    A method whose mechanisms tuning switched off costs what the method costs that is left.
    """
    cell = record.cell
    method = get(reduced_to(cell))
    features = len(record.facts["fleet"]["features"])
    model = get_model(cell.model, window=DataSettings().window, features=features)
    own, plain = costs(method, model), costs(get("fedavg"), model)
    steps = max(1.0, _measured()["times_fedavg"].get(method.name, 1.0))
    probing = any(isinstance(rule, RoughnessProximal) for rule in method.local)
    return RoundCost(
        (own.up + own.down) / (plain.up + plain.down),
        steps + (_probes(record, scale) if probing else 0.0),
    )


def _probes(record: Record, scale: Scale) -> float:
    """Time of the probes a participation, in rounds of FedAvg."""
    config = run_config(record.cell, scale)
    (own,) = (r for r in config.methods[0].method.local if isinstance(r, RoughnessProximal))
    usual = RoughnessProximal()
    calls = config.training.rounds * config.training.participation
    share = 1 / own.probe_every + (1 - 1 / own.probe_every) / max(calls, 1.0)
    # The usual probe was measured; another one takes as many more forward passes as it has.
    size = (own.directions * (own.points + 1) * own.probe_batch) / (
        usual.directions * (usual.points + 1) * usual.probe_batch
    )
    steps = record.rounds["steps"].sum() / max(record.rounds["participants"].sum(), 1)
    return float(share * size * _measured()["probe_in_steps"] / max(steps, 1.0))


@cache
def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found
