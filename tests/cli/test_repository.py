"""Commands of the packages beside the library, with and without them."""

import pytest
import typer
from typer.testing import CliRunner

from fedwatt.cli import PACKAGES, app, mount

HELP = {"compare": "--trials", "reproduce": "--records", "bench": "latency"}


@pytest.mark.parametrize("command", PACKAGES)
def test_the_repository_has_the_command(command: str) -> None:
    assert HELP[command] in CliRunner().invoke(app, [command, "--help"]).output


@pytest.mark.parametrize("arguments", [[], ["--help"], ["all", "--scale", "smoke"]])
def test_without_its_package_a_command_says_how_to_get_it(arguments: list[str]) -> None:
    bare = typer.Typer()
    bare.callback()(lambda: None)
    mount(bare, "reproduce", "no_such_package")
    failed = CliRunner().invoke(bare, ["reproduce", *arguments])
    assert str(failed.exception) == (
        "'fedwatt reproduce' belongs to fedwatt's repository, not to the installed library: "
        "clone the repository, run 'make setup' in it and use its .venv/bin/fedwatt."
    )


def test_another_package_of_that_name_is_not_taken_for_it() -> None:
    bare = typer.Typer()
    bare.callback()(lambda: None)
    mount(bare, "bench", "json")  # a package without a module `cli`
    assert "belongs to fedwatt's repository" in str(CliRunner().invoke(bare, ["bench"]).exception)
