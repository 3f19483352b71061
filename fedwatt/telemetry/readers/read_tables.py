"""Go through the files of an import, whatever their kind, block by block and with progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.readers.archive import read_members
from fedwatt.telemetry.readers.find_files import FoundTable
from fedwatt.telemetry.readers.stream import Progress
from fedwatt.telemetry.readers.table_blocks import CsvFeed, TableLayout, read_csv, read_parquet


@dataclass(frozen=True)
class Source:
    """A file, or a member of an archive: its path, its name in messages, and its number."""

    table: FoundTable
    path: Path
    where: str
    number: int


def read_tables(
    tables: Sequence[FoundTable],
    layout_of: Callable[[FoundTable], TableLayout],
    add: Callable[[pl.DataFrame, Source, int], Account],
    progress: Progress,
) -> tuple[Account, list[str]]:
    """Hand all rows to `add`; what became of them, and the names of files that were passed over.

    `add(rows, source, number of the first row)` is called block by block.
    """
    total = sum(table.size() for table in tables)
    done = 0
    accounts: list[Account] = []
    feeds: list[CsvFeed] = []

    def seen(size: int) -> None:
        nonlocal done
        done += size
        progress(min(done, total), total, f"reading {feeds[-1].where}")

    def begin(table: FoundTable, member: str = "") -> CsvFeed:
        path = table.path / member if member else table.path
        where = f"{table.path.name}/{member}" if member else table.path.name
        source = Source(table, path, where, len(feeds))

        def sink(frame: pl.DataFrame, account: Account, first_row: int) -> None:
            accounts.append(account + add(frame, source, first_row))

        feeds.append(CsvFeed(where, layout_of(table), sink))
        return feeds[-1]

    for table in tables:
        if table.kind == "csv":
            read_csv(table.path, begin(table), seen)
        elif table.kind == "parquet":
            feed = begin(table)
            read = read_parquet(table.path, feed.layout, feed.sink, seen, feed.where)
            feed.passed_over = not read
        else:
            read_members(table.path, partial(begin, table), seen)
    return Account.total(accounts), [feed.where for feed in feeds if feed.passed_over]
