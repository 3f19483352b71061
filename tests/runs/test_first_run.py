"""The default comparison, on fewer vehicles and rounds: what it says does not hang on a rate."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.report.answer import answer
from fedwatt.report.baselines import baseline_rmse
from fedwatt.report.load import Columns, load_run
from fedwatt.report.statistics import curves
from fedwatt.runs.config import DEFAULT_METHODS, RunConfig, from_tables
from fedwatt.runs.run import Run
from tests.runs.test_execute import Silent

RATES = {"fedavg": 1.0, "half": 0.5, "double": 2.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """FedAvg at its rate, half and twice that, and FO-RI-FedAvg, with baselines."""
    learning_rate = DEFAULT_METHODS["fedavg"]
    local = DEFAULT_METHODS["fo-ri-fedavg"]
    methods = [
        {"name": "fedavg", "label": label, "learning_rate": factor * learning_rate}
        for label, factor in RATES.items()
    ]
    methods.append({"name": "fo-ri-fedavg", "learning_rate": local, "directions": 4})
    tables = {"fleet": {"vehicles": 6}, "training": {"rounds": 16, "participation": 0.5}}
    folder = tmp_path_factory.mktemp("first") / "run"
    Run(from_tables(tables | {"method": methods}), out=folder, observer=Silent()).execute()
    return load_run(folder)


def pair(run, label):
    """The run as if FO-RI-FedAvg and the FedAvg of this label were all there was."""

    def chosen(columns: Columns) -> Columns:
        keep = np.isin(columns["method"], [label, "fo-ri-fedavg"])
        remaining_columns = {name: values[keep] for name, values in columns.items()}
        named = ["fedavg" if method == label else method for method in remaining_columns["method"]]
        return {**remaining_columns, "method": np.array(named, dtype=object)}

    tables = {n: chosen(getattr(run, n)) for n in ("rounds", "vehicles", "timing")}
    origin = replace(run.origins[0], methods=frozenset(("fedavg", "fo-ri-fedavg")))
    return replace(run, origins=(origin,), **tables)


def test_the_defaults_have_a_rate_for_each_method():
    assert {choice.label: choice.learning_rate for choice in RunConfig().methods} == DEFAULT_METHODS
    assert from_tables({}) == RunConfig()
    for tables in ({"training": {"learning_rate": 0.03}}, {"method": [{"name": "fedavg"}]}):
        assert all(choice.learning_rate is None for choice in from_tables(tables).methods)


def test_the_report_compares_with_five_baselines(run):
    assert list(baseline_rmse(run)) == ["mean", "ridge", "network", "local", "pooled"]


def test_the_headline_holds_at_half_and_at_twice_the_rate(run):
    headlines = {label: answer(pair(run, label)).headline for label in RATES}
    assert len(set(headlines.values())) == 1
    sentences = [answer(pair(run, label)).sentences[-1] for label in RATES]
    # Three seeds can make a tiny difference significant; the sentence then says how small it is.
    assert all("no significant difference" in s or "but under 2 %" in s for s in sentences)


@pytest.mark.parametrize("label", ["fedavg", "fo-ri-fedavg"])
def test_the_curve_falls_over_five_rounds(run, label):
    error = curves(run, label, "test_rmse").values.mean(axis=0)
    assert (np.diff(error[:6]) < 0).all()
