"""`fedwatt reproduce`: its studies, its plan, a run, and what it refuses."""

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.errors import SettingError
from reproduction.data import Sources
from reproduction.study import setting_for
from tests.reproduction.records import SCALE


def test_the_command_lists_plans_and_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDWATT_DATA", str(tmp_path / "none"))
    run = CliRunner().invoke
    listed = run(app, ["reproduce", "--list"])
    assert listed.exit_code == 0 and "bev main results" in listed.output
    out = ["--out", str(tmp_path / "out"), "--dataset", "synthetic"]
    planned = run(app, ["reproduce", "main", "--plan", *out], env={"COLUMNS": "120"})
    assert planned.exit_code == 0 and "44" in planned.output, planned.output
    studies = ["seeds", "latency"]
    done = run(app, ["reproduce", *studies, *out])
    assert done.exit_code == 0, done.output
    assert "[3/3]" in done.output
    page = (tmp_path / "out" / "smoke" / "report.html").read_text(encoding="utf-8")
    assert "energy simulated; seeds 1, 2" in page
    again = run(app, ["reproduce", *studies, *out])
    assert "[1/" not in again.output


def test_unknown_datasets_are_refused(tmp_path) -> None:
    with pytest.raises(SettingError, match=r"Unknown dataset 'vedd'\. Did you mean 'ved'"):
        setting_for(SCALE, Sources(), ["vedd"])
    refused = CliRunner().invoke(
        app, ["reproduce", "main", "--dataset", "synthetic-enriched", "--out", str(tmp_path)]
    )
    assert isinstance(refused.exception, SettingError)
    assert "place of the paper's eVED" in str(refused.exception)
    assert setting_for(SCALE, Sources(), ["synthetic", "synthetic-enriched"]).eved
