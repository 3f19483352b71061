"""Records that are run again: equal ones pass, changed ones do not."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from reproduction import scale as scales
from reproduction.cell import key_of
from reproduction.lab import Lab
from reproduction.record import MADE_WITH, Record, read_records, write_records
from reproduction.verify import Check, Draw, close, compared, drawn, verified
from tests.reproduction.small import TINY, cells_of_a_run

FO = cells_of_a_run()[0]


@pytest.fixture(scope="module")
def compact(lab, tmp_path_factory) -> dict[str, Record]:
    """The records of the lab as they are committed."""
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, TINY.name, lab._known, {})
    return read_records(folder)


def changed(record: Record, column: str, row: int, factor: float) -> Record:
    """The record with one number of its rounds changed."""
    values = record.rounds[column].copy()
    values[row] *= np.float32(factor)
    return replace(record, rounds=dict(record.rounds) | {column: values})


def silent(done: int, rounds: int) -> None: ...


def test_a_cell_that_is_run_again_has_every_number_of_its_record(lab, compact) -> None:
    draw = drawn(lab, compact, seed=1, limit_s=600)
    assert sorted(draw.keys) == sorted(compact) and not draw.refused
    checks = list(verified(lab, compact, draw, 2, silent))
    assert [check.cell for check in checks] == [compact[key].cell for key in draw.keys[:2]]
    for check in checks:
        assert check.differences == () and check.faults == () and check.largest == 0
        assert check.numbers >= 36  # of a trial two rounds, 18 columns each


def test_one_changed_number_is_found(lab, compact) -> None:
    record = compact[key_of(FO, TINY)]
    again = lab.get(FO)
    assert compared(record, again, 0.0).faults == ()
    wrong = compared(changed(record, "test_mae", 3, 1 + 2**-23), again, 0.0)
    (fault,) = wrong.faults
    assert fault.startswith("rounds.test_mae: 1 of 6 differ, first in row 3")


def test_other_machines_are_held_to_a_tolerance(lab, compact) -> None:
    record = compact[key_of(FO, TINY)]
    again = lab.get(FO)
    elsewhere = dict(record.made_with) | {"processor": "another"}
    record = replace(record, facts=record.facts | {MADE_WITH: elsewhere})
    last = len(record.rounds["seed"]) - 1
    seeds = len(record.final("test_rmse"))
    recorded_wh = float(record.rounds["test_rmse"][last])
    # One seed moved by so many Wh; the mean over seeds moves by a share of it.
    for moved_wh, faults in ((0.0, 0), (0.09 * seeds, 0), (0.11 * seeds, 1), (0.7 * seeds, 2)):
        factor = 1 + moved_wh / recorded_wh
        check = compared(changed(record, "test_rmse", last, factor), again, 0.0)
        assert check.differences == ("processor",)
        assert len(check.faults) == faults, check.faults
    # Who took part does not depend on rounding.
    counts = record.rounds["participants"] + 1
    _, faults = close(replace(record, rounds=dict(record.rounds) | {"participants": counts}), again)
    assert faults == ["rounds.participants: not the same"]


def test_what_cannot_be_run_again_is_told(lab, compact) -> None:
    timed = replace(FO, purpose="time")
    away = replace(FO, dataset="ved")
    records = dict(compact) | {
        "old": compact[key_of(FO, TINY)],
        "time": replace(compact[key_of(FO, TINY)], cell=timed),
        key_of(away, TINY): replace(compact[key_of(FO, TINY)], cell=away),
    }
    refused = drawn(lab, records, seed=1, limit_s=600).refused
    assert refused == {
        "of an older format, whose settings are not those of today": 1,
        "about time, which does not repeat": 1,
        "on data that is not here: ved": 1,
    }
    short = drawn(lab, compact, seed=1, limit_s=1e-6)
    assert short.keys == () and sum(short.refused.values()) == len(compact)
    fewer = {"fleet": {"hash": "0", "vehicles": 3, "windows": {"train": 1, "test": 1}}}
    fewer["fleet"]["windows"]["validation"] = 1
    other = {key: replace(record, facts=record.facts | fewer) for key, record in compact.items()}
    entries = list(verified(lab, other, drawn(lab, other, seed=1, limit_s=600), 1, silent))
    assert len(entries) == len(other) and not any(isinstance(result, Check) for result in entries)


def test_telemetry_that_differs_in_its_bits_is_held_to_the_tolerance(lab, compact) -> None:
    record = compact[key_of(FO, TINY)]
    rounded = replace(record, facts=record.facts | {"fleet": record.facts["fleet"] | {"hash": "0"}})
    (check,) = verified(lab, {"a": rounded}, Draw(("a",), {}), 1, silent)
    assert check.differences == ("telemetry",) and check.faults == ()


def test_the_command_ends_with_status_1_where_a_record_was_changed(
    lab, compact, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("FEDWATT_DATA", str(tmp_path / "none"))
    monkeypatch.setitem(scales.SCALES, TINY.name, TINY)
    first = {key_of(FO, TINY): compact[key_of(FO, TINY)]}
    options = ["--device", "cpu", "--out", str(tmp_path / "out")]

    def run(records: dict[str, Record]):
        write_records(tmp_path / "records", TINY.name, records, {})
        where = ["--records", str(tmp_path / "records"), *options]
        return CliRunner().invoke(app, ["reproduce", "verify", *where], env={"COLUMNS": "160"})

    good = run(first)
    assert good.exit_code == 0, good.output
    assert "bit for bit" in good.output and "equal" in good.output
    bad = run({key: changed(record, "test_rmse", 5, 1.0001) for key, record in first.items()})
    assert bad.exit_code == 1, bad.output
    assert "differs" in bad.output
    assert Lab(TINY, tmp_path / "out", device="cpu").every == []  # nothing is kept of it
