"""The command: what it shows, and what it refuses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.errors import SettingError

ROOT = Path(__file__).parents[2]


def test_the_list_has_datasets_and_methods() -> None:
    output = CliRunner().invoke(app, ["compare", "--list"]).output
    assert "severe elevation" in output
    assert "scaffold+momentum" in output.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--stored", "fleets/ved"], "is not ved=FOLDER or electrified=FOLDER"),
        (["--only", "ved elevatio"], "Did you mean 'elevation'"),
        (["--trials", "0"], "trials must be at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: list[str], reason: str) -> None:
    failed = CliRunner().invoke(app, ["compare", *arguments])
    assert isinstance(failed.exception, SettingError)
    assert reason in str(failed.exception)


def test_the_page_is_checked_against_the_records() -> None:
    assert CliRunner().invoke(app, ["compare", "--check"]).exit_code == 0


def test_the_report_is_one_page_with_the_recommendation(tmp_path) -> None:
    file = tmp_path / "comparison.html"
    assert CliRunner().invoke(app, ["compare", "--report", str(file)]).exit_code == 0
    page = file.read_text(encoding="utf-8")
    assert "Recommended method: " in page and '<table class="sortable">' in page
    assert "prefers-color-scheme: dark" in page
    cells = (ROOT / "results" / "comparison.csv").read_text(encoding="utf-8").splitlines()
    assert page.count("<tr><td") == len(cells) - 1
