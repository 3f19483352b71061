"""What a run was made of: its fleet in figures, and hashes that show two runs saw the same data."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from statistics import median
from typing import Any

from fedwatt.data import Fleet


def describe_fleet(fleet: Fleet) -> dict[str, Any]:
    """The fleet in figures."""
    return {
        "source": fleet.source,
        "vehicles": len(fleet.clients),
        "held_out": [client.name for client in fleet.clients if client.held_out],
        "features": list(fleet.features),
        "windows": {split: fleet.windows(split) for split in ("train", "validation", "test")},
        "target": describe_target(fleet),
        "labels": {
            "measured": sum(not client.simulated for client in fleet.clients),
            "simulated": sum(client.simulated for client in fleet.clients),
        },
    }


def describe_target(fleet: Fleet) -> dict[str, Any]:
    """What windows predict, and how coarse the labels are: median over vehicles, in its unit."""
    target = fleet.settings.predicts
    grains = [client.label_grain for client in fleet.clients]
    about = {name: getattr(target, name) for name in ("name", "unit", "adds", "typical")}
    return about | {"meaning": target.described, "grain": median(grains)}


def fleet_hashes(fleet: Fleet) -> dict[str, str]:
    """Hashes of the splits (trips), the partition (vehicles, windows) and the data itself."""
    return {
        "splits": fleet.split_hash(),
        "partition": fleet_partition(fleet),
        "data": fleet.data_hash(),
    }


def fleet_partition(fleet: Fleet) -> str:
    """Hash of the vehicles' names and numbers of training windows."""
    return hash_of((c.name, c.held_out, len(c.ends["train"])) for c in fleet.clients)


def participation_hashes(clients: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """For each seed, a hash of who was asked in which round: equal for all methods of a run."""
    called: dict[int, list[tuple[int, str]]] = {}
    for row in clients:
        called.setdefault(row["seed"], []).append((row["round"], row["vehicle"]))
    return {str(seed): hash_of(sorted(pairs)) for seed, pairs in sorted(called.items())}


def hash_of(items: Iterable[object]) -> str:
    """Hex digest of the items' texts."""
    return sha256("\n".join(repr(item) for item in items).encode()).hexdigest()[:32]
