"""Values that trackers are given: scalars of a round, and the files of a finished run."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from fedwatt.runs.model_file import MODEL_FILE

KEYS: Final = ("seed", "round", "method")
"""Columns of a row that say where it belongs."""


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row of rounds.parquet.

    >>> scalars({"seed": 1, "evaluated": True, "test_rmse": 48, "learning_rate": float("nan")})
    {'test_rmse': 48.0}
    """
    return {
        name: float(value)
        for name, value in row.items()
        if name not in KEYS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    }


def all_scalars(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the seeds that have a number, and each seed's own.

    >>> all_scalars([{"seed": 1, "test_rmse": 48.0}, {"seed": 2, "test_rmse": 50.0}])
    {'test_rmse': 49.0, 'seed-1/test_rmse': 48.0, 'seed-2/test_rmse': 50.0}
    """
    by_seed = {row["seed"]: scalars(row) for row in rows}
    names = dict.fromkeys(name for seed_scalars in by_seed.values() for name in seed_scalars)
    means = {
        name: fmean(seed_scalars[name] for seed_scalars in by_seed.values() if name in seed_scalars)
        for name in names
    }
    for seed, seed_scalars in by_seed.items():
        means |= {f"seed-{seed}/{name}": value for name, value in seed_scalars.items()}
    return means


def artefacts(run: Path) -> Iterator[Path]:
    """Yield the files of a finished run that are worth keeping elsewhere; those that there are."""
    for name in ("config.toml", "report.html", "vehicles.parquet", "rounds.parquet", MODEL_FILE):
        if (run / name).is_file():
            yield run / name
    yield from sorted((run / "figures").glob("*.svg"))
