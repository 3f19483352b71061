"""The record of a cell: its settings, its provenance, and its rounds as columns.

    FOLDER/cells.json         cells by key, the fleet and the device in words, measurements; with
                              what they were made (code, libraries, machine) stands there once
    FOLDER/rounds.parquet     a row for each seed and round
    FOLDER/vehicles.parquet   a row for each reply, of methods that measure roughness
    FOLDER/timing.parquet     seconds of each round, which do not reproduce

Numbers have single precision. A cache has such a folder for each cell, committed records have one
for all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedwatt.errors import RunError
from fedwatt.files import write_atomically, write_text
from reproduction.cell import Cell

Columns = Mapping[str, NDArray[Any]]

REACH: Final = 10
"""D_cv(200) is the mean over rounds 200 ± 10: over three participants a single round is noise."""
FLAT: Final = 1e-3
"""Monotone slices have roughness 0 but for the guard ε_A, which leaves values below this."""

COUNTS: Final = ("seed", "round", "participants", "steps", "best_round")
NUMBERS: Final = (
    "drift_mean",
    "drift_cv",
    "roughness_mean",
    "pearson",
    "spearman",
    "validation_rmse",
    "test_rmse",
    "test_mae",
    "test_mape",
    "test_wmape",
    "test_rmse_macro",
    "best_test_rmse",
)
ROUNDS: Final = pa.schema(
    [(n, pa.int32()) for n in COUNTS]
    + [(n, pa.float32()) for n in NUMBERS]
    + [("diverged", pa.bool_())]
)
VEHICLES: Final = pa.schema(
    [("seed", pa.int32()), ("round", pa.int32()), ("vehicle", pa.string())]
    + [(n, pa.float32()) for n in ("drift", "roughness", "pull")]
)
PARTS: Final = ("training", "preconditioner", "probe", "spectral", "aggregation", "evaluation")
TIMING: Final = pa.schema([("round", pa.int32())] + [(n, pa.float32()) for n in PARTS])
MADE_WITH: Final = "made with"
"""Fact of a record: the provenance of its numbers, or in committed records its number."""
CORE_SECONDS: Final = "core_seconds"
"""Fact of a record that was trained alone on a processor: the seconds of its process."""
TABLES: Final = {"rounds": ROUNDS, "vehicles": VEHICLES, "timing": TIMING}


@dataclass(frozen=True)
class Record:
    """A finished cell."""

    cell: Cell
    facts: Mapping[str, Any]
    """The fleet: source, vehicles, windows, labels, hash; the device; what else was measured."""
    rounds: Columns
    vehicles: Columns
    timing: Columns = field(default_factory=dict)

    @property
    def made_with(self) -> Mapping[str, Any]:
        """Return code, libraries and machine."""
        provenance: Mapping[str, Any] = self.facts[MADE_WITH]
        return provenance

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return all seeds, diverged ones included: a trial may have no row of these."""
        return tuple(dict.fromkeys((*self.cell.seeds, *self.rounds["seed"].tolist())))

    @cached_property
    def diverged(self) -> dict[int, int]:
        """Return diverged seed → the round by which it had.

        A seed diverged if it was told so, if it has no row in the last round of its record, or if
        its test error ends no lower than that of the untrained network in round 0.
        """
        rounds = self.rounds["round"]
        lost = {}
        last = int(rounds.max(initial=0))
        for seed in self.seeds:
            rows = self.rounds["seed"] == seed
            flagged = rounds[rows & self.rounds["diverged"].astype(bool)]
            reached = int(rounds[rows].max(initial=0))
            if flagged.size:
                lost[seed] = int(flagged.min())
            elif not rows.any() or reached < last:
                lost[seed] = int(rounds[rounds > reached].min(initial=last))
            elif self._untrained(seed):
                lost[seed] = last
        return lost

    def _untrained(self, seed: int) -> bool:
        """Return whether a seed ends with no lower test error than its untrained network had."""
        at, errors = self.curve("test_rmse", seed)
        return bool(errors.size) and at[0] == 0 and not errors[-1] < errors[0]

    def curve(self, column: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return (rounds, values) of a seed where the column was recorded."""
        rows = self.rounds["seed"] == seed
        values = self.rounds[column][rows].astype(np.float64)
        recorded = np.isfinite(values)
        return self.rounds["round"][rows][recorded].astype(np.int64), values[recorded]

    def final(self, column: str) -> dict[int, float]:
        """Return last recorded value of a column for every seed that did not diverge.

        Diverged seeds are missing: whoever compares must ask for `diverged` as well.
        """
        curves = {seed: self.curve(column, seed)[1] for seed in self.seeds}
        lost = self.diverged
        return {s: float(v[-1]) for s, v in curves.items() if v.size and s not in lost}

    def around(self, column: str, round: int, reach: int) -> dict[int, float]:
        """Return per seed the mean of a column around a round; diverged seeds are left out."""
        means = {}
        lost = self.diverged
        for seed in self.seeds:
            rounds, values = self.curve(column, seed)
            near = values[np.abs(rounds - round) <= reach]
            if near.size and seed not in lost:
                means[seed] = float(near.mean())
        return means


def columns_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Columns:
    """Return rows as columns of a table."""
    named = [{name: row.get(name) for name in schema.names} for row in rows]
    return _columns(pa.Table.from_pylist(named, schema=schema))


def write_records(
    folder: Path, scale: str, records: Mapping[str, Record], setting: Mapping[str, Any]
) -> None:
    """Write records of one scale in four files, compact enough to be committed.

    `setting` says which datasets and methods they were made for; empty if that is not known.
    """
    ordered = dict(sorted(records.items()))
    made: list[Mapping[str, Any]] = []
    for record in ordered.values():
        if record.made_with not in made:
            made.append(record.made_with)
    content = {
        "scale": scale,
        **({"setting": dict(setting)} if setting else {}),
        MADE_WITH: made,
        "cells": {
            key: {
                "cell": asdict(record.cell),
                "facts": {**record.facts, MADE_WITH: made.index(record.made_with)},
            }
            for key, record in ordered.items()
        },
    }
    for name, schema in TABLES.items():
        tables = []
        for key, record in ordered.items():
            table = pa.table(dict(getattr(record, name)) or columns_of([], schema), schema=schema)
            keys = pa.array([key] * len(table), pa.string()).dictionary_encode()
            tables.append(table.append_column("key", keys))

        write = partial(_write_small, pa.concat_tables(tables))
        write_atomically(folder / f"{name}.parquet", write)
    write_text(folder / "cells.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def scale_of_records(folder: Path) -> str:
    """Return the scale of records; empty where there are none."""
    return str(_content(folder).get("scale", ""))


def setting_of_records(folder: Path) -> dict[str, Any]:
    """Return datasets and methods that records were made for, if they say."""
    return dict(_content(folder).get("setting", {}))


def read_records(folder: Path) -> dict[str, Record]:
    """Return key → record; empty where there are none."""
    content = _content(folder)
    if not content:
        return {}
    made = content[MADE_WITH]
    tables = {name: _read_table(folder / f"{name}.parquet") for name in TABLES}
    return {
        key: Record(
            cell_from(entry["cell"]),
            entry["facts"] | {MADE_WITH: made[entry["facts"][MADE_WITH]]},
            **{
                name: {c: columns[c][rows.get(key, slice(0, 0))] for c in TABLES[name].names}
                for name, (columns, rows) in tables.items()
            },
        )
        for key, entry in content["cells"].items()
    }


def _content(folder: Path) -> dict[str, Any]:
    """Return cells.json; empty where there is none."""
    file = folder / "cells.json"
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return content


def _read_table(file: Path) -> tuple[Columns, dict[str, slice]]:
    """Return the columns of a file, and the rows of each key."""
    try:
        # In one go: another process may put a new file in its place meanwhile.
        table = pq.read_table(pa.BufferReader(file.read_bytes()))
    except (OSError, pa.ArrowInvalid) as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    keys = table["key"].combine_chunks().dictionary_encode()
    counts = np.bincount(keys.indices.to_numpy(), minlength=len(keys.dictionary))
    ends = np.cumsum(counts).tolist()  # rows of a key follow each other
    rows = map(slice, [0, *ends], ends)
    return _columns(table), dict(zip(keys.dictionary.to_pylist(), rows, strict=True))


def same_kind(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the differences of two provenances that numbers may depend on.

    The number of threads is not among it, and neither is the commit: engines of one version give
    the same numbers.
    """
    on_gpu = first.get("device") != "cpu"
    names = ("engine", "device", *(("driver", "cuda") if on_gpu else ("processor", "compiler")))
    differing = [name for name in names if first.get(name) != second.get(name)]
    versions = [item.get("versions", {}) for item in (first, second)]
    differing += [name for name in ("torch", "numpy") if len({v.get(name) for v in versions}) > 1]
    if not (first.get("deterministic") and second.get("deterministic")):
        differing.append("deterministic")
    return differing


def same_training(first: Record, second: Record) -> bool:
    """Return whether two records tell of one training."""
    return first.facts == second.facts and all(
        np.array_equal(column, getattr(second, table)[name], equal_nan=True)
        for table in ("rounds", "timing")
        for name, column in getattr(first, table).items()
    )


def with_seeds(record: Record, seeds: Sequence[int]) -> Record:
    """Return the rows of some seeds, which train independently of the others in their stack."""
    rounds, vehicles = (
        {name: column[np.isin(table["seed"], seeds)] for name, column in table.items()}
        for table in (record.rounds, record.vehicles)
    )
    cell = replace(record.cell, seeds=tuple(seeds))
    return replace(record, cell=cell, rounds=rounds, vehicles=vehicles)


def cell_from(table: Mapping[str, Any]) -> Cell:
    """Return the cell that `asdict` took apart."""
    settings = tuple((name, value) for name, value in table["settings"])
    return Cell(**{**table, "settings": settings, "seeds": tuple(table["seeds"])})


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _write_small(table: pa.Table, path: Path) -> None:
    """Write numbers split into their bytes, whose exponents then compress by a third more."""
    numbers = [f.name for f in table.schema if f.type == pa.float32()]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in numbers],
        column_encoding=dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
    )
