"""Go through the files of an import, whatever their kind, block by block and with progress."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedwatt.data.readers.archive import read_members
from fedwatt.data.readers.find_files import FoundTable
from fedwatt.data.readers.stream import Progress
from fedwatt.data.readers.table_blocks import CsvFeed, read_csv, read_parquet

# (table, path of the file or member, its name in messages, its number) -> where its rows go
FeedFor = Callable[[FoundTable, Path, str, int], CsvFeed]


def read_tables(tables: Sequence[FoundTable], feed_for: FeedFor, progress: Progress) -> list[str]:
    """Feed every file and archive member to its own feed; names of those that were passed over."""
    total, done = sum(table.size() for table in tables), 0
    feeds: list[CsvFeed] = []

    def seen(size: int) -> None:
        nonlocal done
        done += size
        progress(min(done, total), total, f"reading {feeds[-1].where}")

    def begin(table: FoundTable, member: str = "") -> CsvFeed:
        path = table.path / member if member else table.path
        where = f"{table.path.name}/{member}" if member else table.path.name
        feeds.append(feed_for(table, path, where, len(feeds)))
        return feeds[-1]

    for table in tables:
        if table.kind == "csv":
            read_csv(table.path, begin(table), seen)
        elif table.kind == "parquet":
            feed = begin(table)
            read = read_parquet(table.path, feed.layout, feed.sink, seen, feed.where)
            feed.passed_over = not read
        else:
            read_members(table.path, lambda member, table=table: begin(table, member), seen)  # type: ignore[misc]
    return [feed.where for feed in feeds if feed.passed_over]
