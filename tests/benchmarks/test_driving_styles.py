"""The page on driving styles has the table that is on record."""

import json

from benchmarks.driving_styles import PAGE, RECORD, table
from benchmarks.marked import filled


def test_the_page_has_what_is_on_record() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, {"driving styles": table(recorded["fleets"], recorded["ved"])}) == page


def test_a_row_by_hand() -> None:
    fleets = [
        {"drivers": "usual", "vehicles": 9, "clusters": 1, "with_truth": None},
        {"drivers": "two", "vehicles": 9, "clusters": 3, "with_truth": 0.4},
        {"drivers": "two", "vehicles": 9, "clusters": 2, "with_truth": 0.9},
        {"drivers": "two", "vehicles": 9, "clusters": 1, "with_truth": 0.0},
    ]
    assert table(fleets, None).splitlines()[2:] == [
        "| usual | 9 | 0 of 1 | – | – |",
        "| two | 9 | 2 of 3 | 2, 3 | 0.65 |",
    ]
