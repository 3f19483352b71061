"""README's table of installations is the record, and the record keeps its promise."""

import json

from benchmarks.install_sizes import PURPOSE, README, RECORD, table
from benchmarks.marked import filled


def test_the_table_is_the_record() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == filled(text, {"install": table(json.loads(RECORD.read_text()))})


def test_a_computer_that_only_predicts_stays_small() -> None:
    record = json.loads(RECORD.read_text())["installed"]
    assert list(record) == list(PURPOSE)
    assert record["edge"]["megabytes"] < 250
    assert not record["edge"]["torch"] and record["train"]["torch"]
