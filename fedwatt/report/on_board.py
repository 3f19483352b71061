"""What vehicles of a run with hills would use: the network with hills, or the level model."""

from math import isclose, isfinite

from fedwatt.report.curves import diverged
from fedwatt.report.load import Columns, Run, where
from fedwatt.report.statistics import estimate, kept_model, personal_rmse, pooled_rmse
from fedwatt.report.style import name_of
from fedwatt.report.table import amount

ON_BOARD_COLUMN = "RMSE, with level model"
ON_BOARD_NOTE = (
    " With level model: the kept network where a window's climb is known and the vehicle's "
    "validation trips bear the hills out, and elsewhere the same network trained without climb; "
    "personal models are used likewise. All other columns are the networks with hills alone."
)
ON_BOARD_MEANS = (
    "Errors here are those of the final networks alone. With hills, vehicles use the kept network "
    "(or their own models of it), and the level model where climb is not known or their validation "
    "trips do not bear it out."
)


def on_board_rmse(run: Run, method: str) -> list[float]:
    """Pooled RMSE of the kept model with the level model in its place where climb is not known.

    One value for each seed; empty where no level model was trained.
    """
    origins = [origin for origin in run.origins if method in origin.methods]
    if not any(origin.environment.get("level_model") for origin in origins):
        return []
    return pooled_rmse(run, method, kept_model(run, method)).get("all", [])


def hilly_vehicles(run: Run, method: str, model: str) -> tuple[list[int], int]:
    """How many vehicles use hills in some test window, for each finite seed; and of how many.

    All others are predicted by the level model alone: their validation trips do not bear the hills
    out, or climb is known in none of their test windows. No seeds where there is no level model.
    """
    level = next((o.level for o in run.origins if method in o.methods and o.level), None)
    if level is None:
        return [], 0
    rows = {"method": method, "model": model, "stratum": "all", "held_out": False}
    own, alone = (_rmse_by_case(where(table, **rows)) for table in (run.vehicles, level))
    bad = diverged(run, method)
    counts: dict[int, int] = {}
    # A vehicle without test windows has no error, and uses nothing.
    shared = [case for case in own if case in alone and case[0] not in bad and isfinite(own[case])]
    for seed, vehicle in shared:
        # The level model alone makes the same error in both tables, but for rounding.
        hilly = not isclose(own[seed, vehicle], alone[seed, vehicle], rel_tol=1e-6)
        counts[seed] = counts.get(seed, 0) + hilly
    return list(counts.values()), len({vehicle for _, vehicle in shared})


def _rmse_by_case(rows: Columns) -> dict[tuple[int, str], float]:
    """Seed and vehicle → RMSE."""
    columns = (rows[name].tolist() for name in ("seed", "vehicle", "rmse"))
    return {(seed, vehicle): rmse for seed, vehicle, rmse in zip(*columns, strict=True)}


def on_board_errors(run: Run) -> list[str]:
    """Of each method with a level model: its name, test RMSE, and how many vehicles use hills."""
    found = []
    for method in run.methods:
        model, errors = kept_model(run, method), on_board_rmse(run, method)
        if not errors:
            continue
        if own := personal_rmse(run, method):
            model, errors = "personal", own
        counts, vehicles = hilly_vehicles(run, method, model)
        level = amount(run.target, estimate(errors).mean)
        found.append(f"{name_of(method)} {level}{_hilly(counts, vehicles)}")
    return found


def _hilly(counts: list[int], vehicles: int) -> str:
    """How many vehicles use hills, over seeds.

    >>> _hilly([5, 4], 6), _hilly([6, 6], 6)
    (' (4 to 5 of 6 vehicles use hills, by seed)', ' (6 of 6 vehicles use hills)')
    """
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    if low < high:
        return f" ({low} to {high} of {vehicles} vehicles use hills, by seed)"
    return f" ({low} of {vehicles} vehicles use hills)"
