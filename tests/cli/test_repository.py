"""Commands of the packages beside the library, with and without them."""

import pytest
from typer.testing import CliRunner

from fedwatt.cli import PACKAGES, app, mount

HELP = {"compare": "--trials", "reproduce": "--records", "bench": "latency"}


@pytest.mark.parametrize("command", PACKAGES)
def test_the_repository_has_the_command(command: str) -> None:
    assert HELP[command] in CliRunner().invoke(app, [command, "--help"]).output


def test_another_package_of_that_name_is_not_taken_for_it() -> None:
    before = [*app.registered_commands]
    mount("bench", "json")  # a package without a module `cli`
    mount("bench", "no_such_package")
    assert app.registered_commands == before
