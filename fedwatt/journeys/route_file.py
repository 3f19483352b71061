"""What a fleet knows about routes as a file: RUN/routes.json."""

import numpy as np

from fedwatt.journeys.fleet_routes import JUDGED, FleetRoutes
from fedwatt.journeys.mixed_effects import FleetEffects
from fedwatt.journeys.route_model import TARGETS
from fedwatt.journeys.route_text import (
    damaged,
    hills_from_arrays,
    hills_to_arrays,
    load_arrays,
    save_arrays,
    sums_from_arrays,
    sums_to_arrays,
)
from fedwatt.terrain.grid import Grid


def fleet_to_bytes(fleet: FleetRoutes) -> bytes:
    """The file of a fleet's routes."""
    arrays = sums_to_arrays(fleet.driving)
    arrays |= {"correction": fleet.correction, "narrower": fleet.narrower}
    arrays |= hills_to_arrays(fleet.hills)
    for target in TARGETS:
        own = fleet.effects[target]
        arrays |= {f"{target}.{name}": getattr(own, name) for name in ("unit", "mean", "spread")}
        arrays[f"{target}.noise"] = np.array([own.noise])
        arrays |= {f"{target}.{name}": fleet.counts[target][name] for name in JUDGED}
    about = {
        "cell_m": fleet.cell_m,
        "vehicles": fleet.vehicles,
        "insiders": sorted(fleet.insiders),
        "wh_per_km": fleet.wh_per_km,
    }
    return save_arrays(arrays, about)


def fleet_from_bytes(content: bytes, where: str) -> FleetRoutes:
    """The fleet's routes in a file; `where` is named if it is damaged."""
    try:
        arrays, about = load_arrays(content)
        effects = {
            target: FleetEffects(
                unit=arrays[f"{target}.unit"],
                mean=arrays[f"{target}.mean"],
                spread=arrays[f"{target}.spread"],
                noise=float(arrays[f"{target}.noise"][0]),
            )
            for target in TARGETS
        }
        counts = {
            target: {name: arrays[f"{target}.{name}"] for name in JUDGED} for target in TARGETS
        }
        driving = sums_from_arrays(arrays)
        correction, narrower = arrays["correction"], arrays["narrower"]
        cell_m, vehicles = float(about["cell_m"]), int(about["vehicles"])
        insiders = frozenset(str(name) for name in about["insiders"])
        wh_per_km = float(about["wh_per_km"])
        hills = hills_from_arrays(arrays, Grid(cell_m=cell_m))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise damaged(where, problem) from problem
    return FleetRoutes(
        cell_m, driving, effects, counts, correction, narrower, vehicles, insiders, wh_per_km, hills
    )
