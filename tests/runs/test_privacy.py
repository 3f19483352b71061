"""Runs of private methods: ε in the table, the report and across a continuation."""

import json
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.privacy import Budget
from fedwatt.report.load import load_run
from fedwatt.report.method_tables import privacy_table
from fedwatt.report.tables import final_results
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from tests.runs.test_execute import Silent, results

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 4
[data]
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = 3
participation = 0.5
sampling = "poisson"
batch = 16
[[method]]
name = "fedavg"
[[method]]
name = "fedavg@private"
label = "private"
noise_multiplier = 2.0
clipping = "adaptive"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("private") / "run"
    Run(from_toml(CONFIG), out=out, observer=Silent()).execute()
    return out


def test_every_round_says_what_was_spent(run: Path) -> None:
    spent = Budget(2.0, 0.5, 4**-1.1)
    for row in read_table(run, "rounds").to_pylist():
        if row["method"] == "private":
            assert row["epsilon"] == spent.epsilon(row["round"])
        else:
            assert isnan(row["epsilon"])
    environment = json.loads((run / "environment.json").read_text())
    stated = {"noise_multiplier": 2.0, "probability": 0.5, "delta": 4**-1.1}
    assert environment["privacy"] == {
        "private": stated | {"sensitivity": 1.0, "repeated": 0, "epsilon_server": None}
    }


def test_the_tables_show_it(run: Path) -> None:
    epsilon = f"{Budget(2.0, 0.5, 4**-1.1).epsilon(3):.3g}"
    header, rows = final_results(run)
    assert header[-1] == "ε"
    assert [row[-1] for row in rows] == ["–", epsilon]
    (row,) = privacy_table(load_run(run)).rows
    # The server adds the noise, so that against it there is no privacy.
    assert row[1:] == (epsilon, "∞", f"{4**-1.1:.3g}", "2", "0.5", "0")
    assert np.isnan(load_run(run).rounds["epsilon"][0])


def test_a_private_run_continues_bit_for_bit(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        Run(from_toml(CONFIG), out=out, observer=Silent(5), checkpoint_seconds=1e9).execute()
    Run(from_toml(CONFIG), out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(run)


def test_what_has_no_epsilon_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"Method 'private': ε rests on Poisson sampling"):
        from_toml(CONFIG.replace('"poisson"', '"fixed"'))
    loose = from_toml(CONFIG + "privacy_delta = 0.5\n")
    watched = Silent()
    with pytest.raises(SettingError, match=r"privacy_delta must be below 1/K = 1/4"):
        Run(loose, out=tmp_path / "run", observer=watched).execute()
    assert watched.rounds == 0
