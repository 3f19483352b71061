import csv
import io
from math import inf

import pytest

from fedwatt.report.load import load_run
from fedwatt.report.statistics import Estimate
from fedwatt.report.table import ReportTable, TableColumn
from fedwatt.report.tables import final_results, tables
from tests.report.conftest import make_run

ONE = ReportTable(
    "demo",
    "A & B",
    (TableColumn("Method"), TableColumn("RMSE", "Wh"), TableColumn("Rounds", digits=0)),
    (
        ("a|b_1", Estimate(52.91, 0.42, 51.87, 53.95, 3), 12.0),
        ("50 %", -1.25, inf),
    ),
    "Note: 5 % < 6 %",
)


@pytest.fixture(scope="module")
def made(run_folder):
    return {table.name: table for table in tables(load_run(run_folder))}


def test_markdown():
    assert ONE.markdown() == (
        "**A & B**\n\n"
        "| Method | RMSE (Wh) | Rounds |\n"
        "| --- | --: | --: |\n"
        "| a\\|b_1 | 52.9 ± 0.4 [51.9, 54.0] | 12 |\n"
        "| 50 % | −1.2 | never |\n"
        "\nNote: 5 % < 6 %\n"
    )


def test_csv_keeps_full_precision():
    head, first, second = csv.reader(io.StringIO(ONE.csv()))
    assert head[1:6] == [f"RMSE (Wh) {p}" for p in ("mean", "std", "low", "high", "seeds")]
    assert first == ["a|b_1", "52.91", "0.42", "51.87", "53.95", "3", "12.0"]
    assert second == ["50 %", "-1.25", "", "", "", "", "inf"]


def test_all_tables_are_there(made):
    assert list(made) == [
        "results",
        "differences",
        "strata",
        "time",
    ]


def test_results_state_what_they_are(made):
    rows = {row[0]: row for row in made["results"].rows}
    assert rows["FedAvg"][1] == "shared" and rows["FedAvg"][-1] == "3"
    assert rows["FO-RI-FedAvg"][-1] == "2; seed 2 diverged at round 17"
    assert "|Y| + 1 Wh" in made["results"].note and "8 % of them here" in made["results"].note
    # No vehicle is held out in this run, so there is no column for it.
    assert not any("held-out" in column.title for column in made["results"].columns)


def test_time_is_per_round_and_seed(made):
    rows = {row[0]: row[1:] for row in made["time"].rows}
    # Stacks of three seeds: (0.24 + 0.006 + 0.03) s / 3.
    assert rows["FedAvg"][0] == pytest.approx(92.0)
    assert rows["FedAvg"][-2:] == (0.0, 0.0)
    # A probe of 0.15 s in every fifth round; a round without evaluation takes 0.336 s besides.
    instantaneous, amortised = rows["FO-RI-FedAvg"][-2:]
    assert instantaneous == pytest.approx(100 * 0.15 / 0.486)
    assert amortised == pytest.approx(100 * 0.03 / 0.366)


def test_single_method_has_no_differences(tmp_path):
    run = load_run(make_run(tmp_path / "run", methods=("fedavg",)))
    assert "differences" not in [table.name for table in tables(run)]


def test_terminal_gets_a_few_columns(run_folder):
    head, rows = final_results(run_folder)
    assert head[0] == "Method" and head[-1] == "Seeds"
    assert [len(row) for row in rows] == [len(head)] * 2
    assert rows[1][0] == "FO-RI-FedAvg" and " ± " in rows[1][2]
