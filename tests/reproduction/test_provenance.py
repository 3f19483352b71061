"""Records tell with what they were made; older ones do not."""

import json
from dataclasses import replace

from fedwatt.engine.version import VERSION
from reproduction.cell import Cell
from reproduction.record import MADE_WITH, read_records, write_records
from reproduction.tables import device_and_engine, made_with_table
from tests.reproduction.records import made

CELL = Cell(dataset="ved", method="fedavg")
OLD = made(CELL)
PROVENANCE = {
    "versions": {"fedwatt": "0.1.0", "torch": "2.13.0"},
    "commit": "0123456789abcdef+changes",
    "engine": VERSION,
    "driver": "570.1",
    "processor": "one",
    "threads": 2,
    "deterministic": True,
}


def test_a_provenance_is_stored_once_and_read_back_with_every_record(tmp_path) -> None:
    new = made(CELL, **{MADE_WITH: PROVENANCE})
    write_records(tmp_path, "paper", {"a": new, "b": new, "c": OLD}, {})
    assert json.loads((tmp_path / "cells.json").read_text())[MADE_WITH] == [PROVENANCE]
    records = read_records(tmp_path)
    assert records["a"].made_with == records["b"].made_with == PROVENANCE
    assert records["c"].made_with == {}


def test_another_engine_is_told() -> None:
    new = made(CELL, **{MADE_WITH: PROVENANCE})
    other = replace(new, facts=new.facts | {MADE_WITH: PROVENANCE | {"engine": VERSION + 1}})
    assert device_and_engine(new) == "cpu"
    assert device_and_engine(other) == f"cpu (engine {VERSION + 1}, not the present one)"
    assert device_and_engine(OLD) == "cpu (engine not recorded)"
    rows = made_with_table([new, OLD, new, other]).rows
    assert rows[0] == (
        *("2", "cpu", str(VERSION), "0.1.0", "0123456789+changes"),
        *("2.13.0", "570.1", "one", "2", "yes"),
    )
    assert rows[1] == ("1", "cpu", *["not recorded"] * 8)
