"""The record of a cell: its settings, its provenance, and its rounds as columns.

    FOLDER/<key>/cell.json         the cell, the fleet and the device in words, its measurements
    FOLDER/<key>/rounds.parquet    a row for each seed and round
    FOLDER/<key>/vehicles.parquet  a row for each reply, of methods that measure roughness
    FOLDER/<key>/timing.parquet    seconds of each round, which do not reproduce

Committed records hold the same for many cells in four files, at single precision. With what cells
were made (code, libraries, machine) stands once in cells.json, under "made with".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
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
    + [(n, pa.float64()) for n in NUMBERS]
    + [("diverged", pa.bool_())]
)
VEHICLES: Final = pa.schema(
    [("seed", pa.int32()), ("round", pa.int32()), ("vehicle", pa.string())]
    + [(n, pa.float64()) for n in ("drift", "roughness", "pull")]
)
PARTS: Final = ("training", "preconditioner", "probe", "spectral", "aggregation", "evaluation")
TIMING: Final = pa.schema([("round", pa.int32())] + [(n, pa.float64()) for n in PARTS])
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
        """Return code, libraries and machine; empty if the record is older than such entries."""
        provenance: Mapping[str, Any] = self.facts.get(MADE_WITH, {})
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
        return self.at(column, None)

    def at(self, column: str, upto: int | None, last: int = 1) -> dict[int, float]:
        """Return per seed the mean of the last values up to a round, without diverged seeds."""
        means = {}
        lost = self.diverged
        for seed in self.seeds:
            if seed in lost:
                continue
            rounds, values = self.curve(column, seed)
            early = values if upto is None else values[rounds <= upto]
            if early.size:
                means[seed] = float(early[-last:].mean())
        return means

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
    return _columns(pa.Table.from_pylist([_only(row, schema) for row in rows], schema=schema))


def write_record(folder: Path, key: str, record: Record) -> None:
    """Store a record; its cell.json comes last and makes it count."""
    cell_folder = folder / key
    for name, schema in TABLES.items():
        table = pa.table(dict(getattr(record, name)) or _empty(schema), schema=schema)

        def write(path: Path, table: pa.Table = table) -> None:
            pq.write_table(table, path)

        write_atomically(cell_folder / f"{name}.parquet", write)
    content = {"cell": asdict(record.cell), "facts": record.facts}
    write_text(cell_folder / "cell.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_record(folder: Path, key: str) -> Record | None:
    """Return the stored record; None if there is no complete one."""
    cell_folder = folder / key
    if not (cell_folder / "cell.json").is_file():
        return None
    content = json.loads((cell_folder / "cell.json").read_text(encoding="utf-8"))
    tables = {name: _columns(pq.read_table(cell_folder / f"{name}.parquet")) for name in TABLES}
    return Record(cell_from(content["cell"]), content["facts"], **tables)


def write_records(
    folder: Path, scale: str, records: Mapping[str, Record], setting: Mapping[str, Any]
) -> None:
    """Write many records of one scale in four files, compact enough to be committed.

    `setting` says which datasets and methods they were made for; empty if that is not known.
    """
    ordered = dict(sorted(records.items()))
    made: list[Mapping[str, Any]] = []
    for record in ordered.values():
        if record.made_with and record.made_with not in made:
            made.append(record.made_with)
    content = {
        "scale": scale,
        **({"setting": dict(setting)} if setting else {}),
        MADE_WITH: made,
        "cells": {
            key: {"cell": asdict(record.cell), "facts": _numbered(record, made)}
            for key, record in ordered.items()
        },
    }
    for name, schema in TABLES.items():
        merged = pa.concat_tables(
            _keyed(key, pa.table(dict(getattr(r, name)) or _empty(schema), schema=schema))
            for key, r in ordered.items()
        )

        def write(path: Path, table: pa.Table = merged) -> None:
            _write_small(path, table)

        write_atomically(folder / f"{name}.parquet", write)
    write_text(folder / "cells.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def scale_of_records(folder: Path) -> str:
    """Return the scale of committed records; empty where there are none."""
    file = folder / "cells.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["scale"]) if file.is_file() else ""


def setting_of_records(folder: Path) -> dict[str, Any]:
    """Return datasets and methods that committed records were made for, if they say."""
    file = folder / "cells.json"
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return dict(content.get("setting", {}))


def read_records(folder: Path) -> dict[str, Record]:
    """Return key → record of committed records; empty where there are none."""
    if not (folder / "cells.json").is_file():
        return {}
    content = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    cells = content["cells"]
    made = content.get(MADE_WITH, [])
    parts: dict[str, dict[str, Columns]] = {key: {} for key in cells}
    for name, schema in TABLES.items():
        try:
            # In one go: another process may put a new file in its place meanwhile.
            table = pq.read_table(pa.BufferReader((folder / f"{name}.parquet").read_bytes()))
        except (OSError, pa.ArrowInvalid) as error:
            raise RunError(f"{folder / f'{name}.parquet'} cannot be read: {error}") from error
        columns = _columns(table)
        rows = _rows_by_key(table)
        for key in cells:
            indices = rows.get(key, np.zeros(0, dtype=np.int64))
            parts[key][name] = {column: columns[column][indices] for column in schema.names}
    return {
        key: Record(cell_from(entry["cell"]), _spelt_out(entry["facts"], made), **parts[key])
        for key, entry in cells.items()
    }


def same_training(first: Record, second: Record) -> bool:
    """Return whether two records tell of one training, also where one of them is compact."""

    def columns(record: Record) -> list[NDArray[np.float32]]:
        return [
            np.asarray(getattr(record, table).get(name, ()), dtype=np.float32)
            for table in ("rounds", "timing")
            for name in TABLES[table].names
        ]

    pairs = zip(columns(first), columns(second), strict=True)
    return first.facts == second.facts and all(np.array_equal(*p, equal_nan=True) for p in pairs)


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


def _numbered(record: Record, made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return facts with the number of the provenance in place of itself."""
    provenance = {MADE_WITH: made.index(record.made_with)} if record.made_with else {}
    return dict(record.facts) | provenance


def _spelt_out(facts: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return facts with the provenance in place of its number."""
    provenance = {MADE_WITH: made[facts[MADE_WITH]]} if MADE_WITH in facts else {}
    return dict(facts) | provenance


def _only(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {name: row.get(name) for name in schema.names}


def _empty(schema: pa.Schema) -> dict[str, list[Any]]:
    return {name: [] for name in schema.names}


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _rows_by_key(table: pa.Table) -> dict[str, NDArray[np.int64]]:
    """Return key → its rows, in their order."""
    keys = table["key"].combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy()
    counts = np.bincount(codes, minlength=len(keys.dictionary))
    # One piece more than there are keys, an empty one.
    *groups, _ = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts))
    return dict(zip(keys.dictionary.to_pylist(), groups, strict=True))


def _keyed(key: str, table: pa.Table) -> pa.Table:
    """Return the table at single precision, with the cell's key as a column."""
    small = [
        pa.field(f.name, pa.float32() if f.type == pa.float64() else f.type) for f in table.schema
    ]
    keys = pa.array([key] * len(table), pa.string()).dictionary_encode()
    return table.cast(pa.schema(small)).append_column("key", keys)


def _write_small(path: Path, table: pa.Table) -> None:
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


def all_keys(folder: Path) -> Iterable[str]:
    """Return keys of the complete records in a cache."""
    return sorted(path.parent.name for path in folder.glob("*/cell.json"))
