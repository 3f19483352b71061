"""The gain of federating, from tables made by hand."""

from math import nan

import pytest

from fedwatt.evaluation import REFERENCES
from fedwatt.report.answer import answer
from fedwatt.report.baselines import baselines_table, federating
from fedwatt.report.load import load_run
from fedwatt.report.tables import baseline_results
from fedwatt.report.write import write_report
from fedwatt.runs.tables import read_table, write_table
from tests.report.conftest import VEHICLES, make_run


def with_references(folder, **rmse):
    """A run whose baselines have these errors, each vehicle `spread` more than the one before."""
    errors = {"mean": 90.0, "ridge": 60.0, "network": 62.0, "pooled": 40.0} | rmse
    spread = errors.pop("spread", 0.0)
    rows = [
        {
            "reference": name,
            "vehicle": vehicle,
            "stratum": "all",
            "seed": 0,
            "windows": 100,
            "rmse": level + spread * (place - 9.5),
        }
        for name, level in errors.items()
        for place, vehicle in enumerate(VEHICLES)
    ]
    write_table(make_run(folder), "baselines", rows)
    return load_run(folder)


def test_the_first_sentence_is_what_federating_gains(tmp_path):
    run = with_references(tmp_path / "run")
    verdict = answer(run)
    verdict_here = federating(run)
    assert verdict_here.method == "fo-ri-fedavg" and verdict_here.reference == "ridge"
    assert verdict_here.saved.mean == pytest.approx(60 - verdict_here.federated)
    percent = 100 * verdict_here.saved.mean / 60
    clause = f"Federating gives {percent:.1f} % lower error than local-only models; FO-RI-FedAvg"
    assert verdict.headline.startswith(clause)
    assert f"({REFERENCES['ridge'].title}) has 60.0 Wh" in verdict.sentences[0]
    assert "95 % interval" in verdict.sentences[0] and "over 20 vehicles" in verdict.sentences[0]
    assert verdict.sentences[1].startswith(
        f"FO-RI-FedAvg has {verdict_here.federated:.1f} Wh, FedAvg "
    )


def test_the_baseline_is_what_vehicles_choose_on_validation(tmp_path):
    local_verdict = federating(with_references(tmp_path / "run", local=61.0))
    assert local_verdict.reference == "local" and local_verdict.alone == pytest.approx(61.0)


def test_a_loss_is_called_a_loss(tmp_path):
    run = with_references(tmp_path / "run", network=20.0)
    assert " higher error than local-only models; " in answer(run).headline
    local_verdict = federating(run)
    assert local_verdict.better == 0
    # Vehicles differ by what they cost, never by a saving below zero.
    lost, low, high = (
        f"{-value:.1f}"
        for value in (local_verdict.saved.mean, local_verdict.saved.high, local_verdict.saved.low)
    )
    assert (
        f"federating costs {lost} Wh (95 % interval {low} to {high} Wh over"
        in (answer(run).sentences[0])
    )


def test_a_model_with_more_error_than_the_mean_has_learned_nothing(tmp_path):
    run = with_references(tmp_path / "run", mean=30.0)
    assert federating(run).constant == pytest.approx(30.0)
    assert answer(run).headline.startswith("Nothing learned: each vehicle's mean has a lower error")


def test_a_mixture_is_what_vehicles_use(tmp_path):
    folder = tmp_path / "run"
    run = with_references(folder)
    assert federating(run).model == "final"
    assert "FedAvg, shared model" in [row[0] for row in baselines_table(run).rows]
    (folder / "config.toml").write_text("[model]\nmixture = true\n")
    run = load_run(folder)
    assert federating(run).model == "final"
    assert "FedAvg, shared model" in [row[0] for row in baselines_table(run).rows]


def test_runs_of_earlier_versions_kept_their_best_model(tmp_path):
    folder = tmp_path / "run"
    with_references(folder)
    for name, unknown in (("vehicles", {}), ("rounds", {"final_validation_rmse": nan})):
        rows = read_table(folder, name).to_pylist()
        rows = [row | unknown for row in rows if row.get("model") != "final"]
        write_table(folder, name, rows)
    verdict = federating(load_run(folder))
    assert (verdict.method, verdict.model) == ("fo-ri-fedavg", "best")


def test_vehicles_that_disagree_leave_nothing_clear(tmp_path):
    level = federating(with_references(tmp_path / "one")).federated
    run = with_references(tmp_path / "two", ridge=level + 0.5, network=90.0, spread=4.0)
    assert answer(run).headline.startswith("No significant gain over local-only models; ")


def test_pooled_data_is_no_vehicle_alone(tmp_path):
    run = with_references(tmp_path / "run")
    table = baselines_table(run)
    rows = {row[0]: row for row in table.rows}
    assert rows[REFERENCES["ridge"].title][1] == pytest.approx(60)
    pooled = rows[REFERENCES["pooled"].title]
    assert (pooled[1], pooled[2].mean, pooled[3]) == (pytest.approx(40), pytest.approx(20), 20)
    assert {"FedAvg, shared model", "FO-RI-FedAvg, shared model"} < rows.keys()


def test_a_run_without_references_says_nothing_about_them(tmp_path):
    run = load_run(make_run(tmp_path / "run"))
    assert federating(run) is None and not baselines_table(run).rows
    assert answer(run).headline.startswith("FO-RI-FedAvg has")


def test_the_page_and_the_terminal_show_them(tmp_path):
    with_references(tmp_path / "run")
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "Federated models and baselines" in page
    assert (tmp_path / "run" / "tables" / "baselines.csv").exists()
    title, header, rows = baseline_results(tmp_path / "run")
    assert title.startswith("Federating gives") and header[0] == "Model" and len(rows) == 6
