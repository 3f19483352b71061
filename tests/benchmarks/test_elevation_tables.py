"""The tables of docs/accuracy.md are those of results/, and say what they should."""

import json

from benchmarks import elevation_tables, tables


def test_a_row_is_the_mean_over_complete_splits_with_its_interval(tmp_path, monkeypatch):
    """Splits with RMSE 3 and 5: mean 4, deviation √2, half width 12.706 · √2 / √2."""
    vehicles = [f"ved-{number}" for number in range(12)]
    cells = {
        "no elevation, personalised": {
            "1": dict.fromkeys(vehicles, 3.0),
            "2": dict.fromkeys(vehicles, 5.0),
            "3": {"ved-0": 99.0},  # not finished: left out
        },
        "k = 3": {"1": dict.fromkeys(vehicles, 1.0)},
    }
    (tmp_path / "elevation_unseen.json").write_text(json.dumps(cells))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert elevation_tables.unseen_table().splitlines()[2:] == [
        "| personalised | none | – | measured | measured | none | 4.0 ± 12.7 | 2 |"
    ]


def test_the_worst_vehicle_of_any_fault_is_named(tmp_path, monkeypatch):
    """Vehicle b has 6 where it had 5 without elevation: +20 %; a has 3 in place of 5."""

    def seeds(**errors: float) -> dict:
        return {"1": errors, "2": errors}

    cells = {
        "no elevation, global": seeds(a=5.0, b=5.0),
        "no elevation, another initial model, global": seeds(a=5.0, b=5.5),
        "frozen, global": seeds(a=3.0, b=6.0),
    }
    cells |= {row.replace("global", "personalised"): errors for row, errors in cells.items()}
    (tmp_path / "elevation_faults.json").write_text(json.dumps(cells))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    words = elevation_tables.fault_words()
    assert "the worst vehicle is b, at +20.0 % against no elevation" in words
    assert "another initial model alone makes up to +10.0 %" in words
