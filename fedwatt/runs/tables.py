"""The tables of a run folder as Parquet files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.errors import RunError
from fedwatt.files import write_atomically
from fedwatt.tables import UNKNOWN, declared

TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
"""Of a column in a file, by its type in `fedwatt.tables`."""


def write_table(
    folder: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    made: dict[str, pa.Table] | None = None,
) -> None:
    """Write `rows` to FOLDER/name.parquet.

    The declared columns come first; those that rows have besides, which rules of your own record,
    follow in the order in which they appear. A row without a value for a column gets the unknown.
    `made` keeps the table for the next time, where rows are only ever added: the earlier ones are
    not gone through again.
    """
    before = None if made is None else made.get(name)
    kinds = {column.name: column.kind for column in declared(name).columns}
    done = 0 if before is None else len(before)
    table = arrow_table(kinds, rows[done:])
    if before is not None:
        same = before.schema == table.schema
        table = pa.concat_tables([before, table]) if same else arrow_table(kinds, rows)
        table = table.combine_chunks()
    if made is not None:
        made[name] = table
    write_atomically(folder / f"{name}.parquet", lambda path: pq.write_table(table, path))


def arrow_table(declared_kinds: Mapping[str, type], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the rows as an Arrow table with the declared columns and any others."""
    kinds = dict(declared_kinds)
    for row in rows:
        if not row.keys() <= kinds.keys():
            kinds |= {column: type(value) for column, value in row.items() if column not in kinds}
    arrays = {
        column: pa.array([row.get(column, UNKNOWN[kind]) for row in rows], TYPES[kind])
        for column, kind in kinds.items()
    }
    return pa.table(arrays)


def read_table(folder: Path, name: str) -> pa.Table:
    """Read FOLDER/name.parquet; raise RunError if it is missing, damaged or of another shape.

    A number that was not recorded yet when the file was written is unknown in all of its rows.
    """
    path = folder / f"{name}.parquet"
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise RunError(f"{folder} has no {path.name}. Is it a finished run?") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    columns = {column.name: column for column in declared(name).columns}
    for column in columns.values():
        if column.name not in table.column_names and column.kind is float:
            unknown = pa.array([column.unknown] * len(table), TYPES[float])
            table = table.append_column(column.name, unknown)
    types = {field.name: field.type for field in table.schema}
    wrong = [
        declared_column.name
        for declared_column in columns.values()
        if types.get(declared_column.name) != TYPES[declared_column.kind]
    ]
    if wrong:
        raise RunError(
            f"{path} does not have the columns of this version: '{wrong[0]}'. Repeat the run."
        )
    return table.select(
        [
            *columns,
            *(declared_column for declared_column in types if declared_column not in columns),
        ]
    )
