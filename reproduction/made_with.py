"""With what records were made: code, libraries and machine, in words and as a table."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from fedwatt.engine.version import GPU_VERSION, VERSION
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.record import Record

NOT_RECORDED: Final = "not recorded"
COLUMNS: Final = ("Cells", "Device", "Engine", "fedwatt", "Commit", "torch", "Driver", "Processor")


def device_and_engine(record: Record) -> str:
    """Return the device of a record, and its engine where that is not the present one.

    An engine of another version can give other numbers for the same cell.
    """
    device = str(record.facts.get("device", "cpu"))
    engine = record.made_with.get("engine", NOT_RECORDED)
    return device if engine == _present(record) else f"{device} (engine {_engine(record)})"


def made_with_table(records: Iterable[Record]) -> ReportTable:
    """Return how many cells were made with what, most of them first."""
    counted = Counter(_row(record) for record in records).most_common()
    return ReportTable(
        "made-with",
        "What the records were made with",
        tuple(TableColumn(name) for name in (*COLUMNS, "Threads", "Deterministic")),
        tuple((f"{count:,}", *row) for row, count in counted),
        f"The present engine's version is {VERSION} on a processor and {GPU_VERSION} on a GPU; it "
        "goes up when the same cell would give other numbers, if only in their last digits. Of "
        "older records the versions were not recorded.",
    )


def _row(record: Record) -> tuple[str, ...]:
    made = record.made_with
    versions = made.get("versions", {})
    commit = str(made.get("commit", NOT_RECORDED))
    changes = "+changes" if commit.endswith("+changes") else ""
    return (
        str(record.facts.get("device", "cpu")),
        _engine(record),
        str(versions.get("fedwatt", NOT_RECORDED)),
        commit[:10] + changes if made else commit,
        str(versions.get("torch", NOT_RECORDED)),
        str(made.get("driver", NOT_RECORDED)),
        str(made.get("processor", NOT_RECORDED)),
        str(made.get("threads", NOT_RECORDED)),
        ("yes" if made["deterministic"] else "no") if made else NOT_RECORDED,
    )


def _engine(record: Record) -> str:
    engine = record.made_with.get("engine", NOT_RECORDED)
    text = (_present(record), NOT_RECORDED)
    return str(engine) if engine in text else f"{engine}, not the present one"


def _present(record: Record) -> int:
    """Return the version that the record's device has now."""
    return VERSION if str(record.facts.get("device", "cpu")) == "cpu" else GPU_VERSION
