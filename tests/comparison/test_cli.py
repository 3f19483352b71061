"""The command: what it shows, and what it refuses."""

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.errors import SettingError


def test_the_list_has_arenas_and_entries() -> None:
    shown = CliRunner().invoke(app, ["tournament", "--list"]).output
    assert "severe hills" in shown
    assert "scaffold+momentum" in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--data", "fleets/ved"], "is not ved=FOLDER or electrified=FOLDER"),
        (["--only", "ved hils"], "Did you mean 'hills'"),
        (["--trials", "0"], "trials must be at least 1"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: list[str], reason: str) -> None:
    failed = CliRunner().invoke(app, ["tournament", *arguments])
    assert isinstance(failed.exception, SettingError)
    assert reason in str(failed.exception)


def test_the_page_is_checked_against_the_records() -> None:
    assert CliRunner().invoke(app, ["tournament", "--check"]).exit_code == 0
