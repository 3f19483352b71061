"""Description of a run's fleet, and hashes that show whether two runs saw the same data."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import ceil, floor
from statistics import median
from typing import Any

import numpy as np

from fedwatt.windows import Fleet


def describe_fleet(fleet: Fleet) -> dict[str, Any]:
    """Return the fleet in figures."""
    return {
        "source": fleet.source,
        "vehicles": len(fleet.clients),
        "held_out": [fleet.name(place) for place in np.flatnonzero(fleet.held_out).tolist()],
        "features": list(fleet.features),
        "windows": {split: fleet.windows(split) for split in ("train", "validation", "test")},
        "target": describe_target(fleet),
        "labels": {
            "measured": sum(not client.simulated for client in fleet.at_hand),
            "simulated": sum(client.simulated for client in fleet.at_hand),
        },
        "kinds": sorted({client.kind for client in fleet.at_hand}),
        "coverage": coverage(fleet),
    } | ({"reckoned_from": len(fleet.at_hand)} if fleet.on_demand else {})


def coverage(fleet: Fleet) -> dict[str, Any]:
    """Return the amount of driving, too coarse to identify vehicles or places; empty if unknown.

    Of a fleet on demand it is reckoned from the vehicles at hand.

    hours, kilometres  of all trips, to two digits
    climb_m_per_km     how hilly roads are, to two digits, where climb is a feature
    ambient_c          outside temperature in nine of ten hours, outward to 5 °C
    """
    samples = []
    factor = len(fleet.clients) / max(len(fleet.at_hand), 1)
    for client in fleet.at_hand:
        scaler = client.scaler
        if scaler is None or scaler.mix is not None:
            return {}
        # A second a minute is enough for numbers of two digits.
        samples.append(client.series[::60].astype(np.float64) * scaler.scale + scaler.center)
    if not sum(map(len, samples)):
        return {}
    rows = np.concatenate(samples)
    names = list(fleet.features)
    summary: dict[str, Any] = {"hours": _two_digits(factor * len(rows) / 60)}
    if "speed" in names:
        metres = rows[:, names.index("speed")].sum()  # of the sampled seconds, as is climb
        summary["kilometres"] = _two_digits(factor * metres * 60 / 1000)
        if "ascent" in names and metres > 0:
            climb = rows[:, names.index("ascent")].sum()
            summary["climb_m_per_km"] = _two_digits(1000 * climb / metres)
    if "ambient" in names:
        low, high = np.quantile(rows[:, names.index("ambient")], (0.05, 0.95))
        summary["ambient_c"] = [5 * floor(low / 5), 5 * ceil(high / 5)]
    return summary


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def describe_target(fleet: Fleet) -> dict[str, Any]:
    """Return the target and the resolution of its labels: median over vehicles, in its unit."""
    target = fleet.settings.predicts
    grains = [client.label_grain for client in fleet.at_hand]
    description = {name: getattr(target, name) for name in ("name", "unit", "adds", "typical")}
    return description | {"meaning": target.described, "grain": median(grains)}


def fleet_partition(fleet: Fleet) -> str:
    """Hash of the vehicles' names and numbers of training windows."""
    return hash_of((c.name, c.held_out, len(c.ends["train"])) for c in fleet.at_hand)


def participation_hashes(clients: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """For each seed, a hash of who was asked in which round: equal for all methods of a run."""
    called: dict[int, list[tuple[int, str]]] = {}
    for row in clients:
        called.setdefault(row["seed"], []).append((row["round"], row["vehicle"]))
    return {str(seed): hash_of(sorted(pairs)) for seed, pairs in sorted(called.items())}


def hash_of(items: Iterable[object]) -> str:
    """Hex digest of the items' texts."""
    return sha256("\n".join(repr(item) for item in items).encode()).hexdigest()[:32]
