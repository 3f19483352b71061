"""Tables of a run folder, and a metric that is declared in one place."""

from math import isnan, sqrt
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pytest import approx

from fedwatt.errors import RunError
from fedwatt.metrics import METRICS, Metric
from fedwatt.report.load import load_run
from fedwatt.report.tables import results_table
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table, write_table
from fedwatt.tables import markdown
from tests.report.conftest import make_run
from tests.runs.test_execute import CONFIG, Silent

PEAKEDNESS = Metric(
    "Peakedness",
    "",
    "RMSE over MAE",
    lambda sums: sqrt(sums.squared_wh2 * sums.windows) / sums.absolute_wh,
    digits=3,
    headline=True,
)


def test_a_metric_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "peakedness", PEAKEDNESS)
    out = tmp_path / "run"
    config = CONFIG.partition("[[method]]")[0].replace("rounds = 6", "rounds = 2")
    Run(from_toml(config + '[[method]]\nname = "fedavg"\n'), out=out, observer=Silent()).execute()

    rounds = read_table(out, "rounds").to_pylist()
    assert [row["test_peakedness"] for row in rounds] == approx(
        [row["test_rmse"] / row["test_mae"] for row in rounds]
    )
    vehicles = [row for row in read_table(out, "vehicles").to_pylist() if row["windows"]]
    assert [row["peakedness"] for row in vehicles] == approx(
        [row["rmse"] / row["mae"] for row in vehicles]
    )
    table = results_table(load_run(out))
    place = [column.heading for column in table.columns].index("Peakedness")
    final = [
        row["peakedness"] for row in vehicles if row["model"] == "final" and row["stratum"] == "all"
    ]
    mean = sum(final) / len(final)
    assert table.rows[0][place].mean == approx(mean)
    assert f"{mean:.3f} ±" in table.text_rows()[0][place]
    assert "| `test_peakedness` | number |  | RMSE over MAE |" in markdown()


def test_a_metric_that_a_file_has_not_got_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run")
    monkeypatch.setitem(METRICS, "peakedness", PEAKEDNESS)
    run = load_run(folder)
    assert all(isnan(value) for value in run.rounds["test_peakedness"])
    table = results_table(run)
    place = [column.heading for column in table.columns].index("Peakedness")
    assert table.text_rows()[0][place] == "–"


@pytest.mark.parametrize("wrong", ["round", "replied"])
def test_a_file_without_a_column_that_is_no_number_is_refused(tmp_path: Path, wrong: str) -> None:
    folder = make_run(tmp_path / "run")
    table = pq.read_table(folder / "clients.parquet")
    pq.write_table(table.drop_columns([wrong]), folder / "clients.parquet")
    with pytest.raises(RunError, match=rf"clients\.parquet does not have .* '{wrong}'"):
        read_table(folder, "clients")


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    table = pq.read_table(folder / "rounds.parquet")
    place = table.column_names.index("learning_rate")
    text = table["learning_rate"].cast("string")
    pq.write_table(table.set_column(place, "learning_rate", text), folder / "rounds.parquet")
    with pytest.raises(RunError, match="'learning_rate'"):
        read_table(folder, "rounds")


def test_rows_that_are_added_make_the_file_of_all_rows(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    made: dict[str, Any] = {}
    rows = [{"method": "fedavg", "seed": 1, "round": n, "vehicle": f"car-{n}"} for n in range(5)]
    extra_columns = {"own_number": 0.5}
    for last in (2, 2, 4):
        write_table(tmp_path, "clients", rows[:last], made)
        write_table(tmp_path / "whole", "clients", rows[:last])
        files = [
            (folder / "clients.parquet").read_bytes() for folder in (tmp_path, tmp_path / "whole")
        ]
        assert files[0] == files[1]
    # What a rule of one's own records from some round on is unknown in the rounds before.
    rows[4] |= extra_columns
    write_table(tmp_path, "clients", rows, made)
    column = read_table(tmp_path, "clients").to_pylist()
    assert [isnan(row["own_number"]) for row in column] == [True] * 4 + [False]
    assert [row["vehicle"] for row in column] == [f"car-{n}" for n in range(5)]
