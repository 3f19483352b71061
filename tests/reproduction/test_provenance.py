"""Records tell with what they were made."""

import json
from dataclasses import replace

import torch

from fedwatt.engine.version import VERSION
from fedwatt.runs.provenance import provenance
from reproduction.cell import Cell
from reproduction.record import MADE_WITH, read_records, same_kind, write_records
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


def test_what_numbers_may_depend_on() -> None:
    origin = provenance(torch.device("cpu"))
    assert same_kind(origin, origin | {"threads": 64, "commit": "another"}) == []
    assert same_kind(origin, origin | {"engine": 0}) == ["engine"]
    assert same_kind(origin, origin | {"processor": "another"}) == ["processor"]
    newer = origin["versions"] | {"torch": "3.0"}
    assert same_kind(origin, origin | {"versions": newer}) == ["torch"]
    everything = ["engine", "device", "processor", "compiler", "torch", "numpy", "deterministic"]
    assert same_kind(origin, {}) == everything
    gpu = origin | {"device": "NVIDIA H200", "driver": "570.1", "deterministic": True}
    assert same_kind(gpu, gpu | {"processor": "another"}) == []
    assert same_kind(gpu, gpu | {"driver": "580.1"}) == ["driver"]
    assert same_kind(gpu, gpu | {"deterministic": False}) == ["deterministic"]
