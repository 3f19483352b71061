"""The Parquet tables of a run folder and their columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.errors import RunError
from fedwatt.files import write_atomically

KINDS: Final = {
    "text": pa.string(),
    "count": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
}


def _schema(**columns: str) -> pa.Schema:
    """Schema from "kind" → names, in the order in which they are given."""
    pairs = [(name, KINDS[kind]) for kind, names in columns.items() for name in names.split()]
    return pa.schema(pairs)


ROUNDS: Final = _schema(
    text="method",
    count="seed round available participants replies lost rejected steps best_round",
    number="rate drift_mean drift_cv roughness_mean pearson spearman validation_rmse test_rmse "
    "test_mae test_mape test_wmape test_near_zero test_rmse_macro test_rmse_weighted "
    "held_out_rmse best_validation_rmse best_test_rmse epsilon clock "
    "staleness_mean",
    flag="evaluated diverged",
)
"""One row for each method, seed and completed round; round 0 is the initial model."""

CLIENTS: Final = _schema(
    text="method vehicle",
    count="seed round windows steps",
    number="drift roughness pull kappa runtime staleness",
    flag="replied rejected probed",
)
"""One row for each vehicle that was asked in a round."""

VEHICLES: Final = _schema(
    text="method model vehicle stratum",
    count="seed windows",
    number="rmse mae mape wmape near_zero",
    flag="held_out",
)
"""Test errors of the final ("last") and the best-validated ("best") models, and of the models that
vehicles made of the best one for themselves ("personal"). In a run with a level model the latter
two are what vehicles would use: the level model where climb is not known or not borne out."""

TIMING: Final = _schema(
    text="method",
    count="round seeds",
    number="training preconditioner probe spectral aggregation evaluation total",
)
"""Seconds of each round of a whole stack. Apart from the rest: time does not reproduce."""

TABLES: Final[dict[str, pa.Schema]] = {
    "rounds": ROUNDS,
    "clients": CLIENTS,
    "vehicles": VEHICLES,
    "timing": TIMING,
}


def write_table(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """`rows` as FOLDER/name.parquet."""
    table = pa.Table.from_pylist(list(rows), schema=TABLES[name])
    write_atomically(folder / f"{name}.parquet", lambda path: pq.write_table(table, path))


def read_table(folder: Path, name: str) -> pa.Table:
    """FOLDER/name.parquet, refused if it is missing, broken or of another shape."""
    path = folder / f"{name}.parquet"
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise RunError(f"{folder} has no {path.name}. Is it a finished run?") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not table.schema.equals(TABLES[name]):
        raise RunError(f"{path} does not have the columns of this version. Repeat the run.")
    return table
