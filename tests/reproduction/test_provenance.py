"""Records tell with what they were made."""

import json
from dataclasses import replace

from fedwatt.engine.version import VERSION
from reproduction.cell import Cell
from reproduction.record import MADE_WITH, read_records, write_records
from reproduction.tables import device_and_engine, made_with_table
from tests.reproduction.records import PROVENANCE, made

RECORD = made(Cell(dataset="ved", method="fedavg"))
OTHER = replace(RECORD, facts=RECORD.facts | {MADE_WITH: PROVENANCE | {"engine": VERSION + 1}})


def test_a_provenance_is_stored_once_and_read_back_with_every_record(tmp_path) -> None:
    write_records(tmp_path, "paper", {"a": RECORD, "b": RECORD}, {})
    assert json.loads((tmp_path / "cells.json").read_text())[MADE_WITH] == [PROVENANCE]
    records = read_records(tmp_path)
    assert records["a"].made_with == records["b"].made_with == PROVENANCE


def test_another_engine_is_told() -> None:
    assert device_and_engine(RECORD) == "cpu"
    assert device_and_engine(OTHER) == f"cpu (engine {VERSION + 1}, not the present)"
    rows = made_with_table([RECORD, OTHER, RECORD]).rows
    assert rows[0] == (
        *("2", "cpu", str(VERSION), "0.1.0", "0123456789+changes"),
        *("2.13.0", "570.1", "one", "2", "yes"),
    )
