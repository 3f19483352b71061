"""Help texts: a verb, one line, defaults, one meaning for each option, one screen."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedwatt import cli
from fedwatt.cli import app

HIDDEN = {"compare", "reproduce", "bench"}
"""Commands for maintainers, which only a checkout of the repository has."""
COMMAND_LINE = 79
OPTION_LINE = 90
SCREEN = 40
VERBS = (
    "Adapt Add Back Change Check Compare Convert Corrupt Delete Describe Draw Electrify Export "
    "Generate Import Inspect Learn List Make Measure Merge Partition Plan Predict Propose Put "
    "Regenerate Restore Run Serve Show Sign Simulate Start Summarise Time Train Tune "
    "Verify Watch Write"
)
OPTION_VERBS = VERBS + (
    " Answer Begin Bias Choose Continue Cut Drive Drop Fine-tune Include Leave Let Limit Listen "
    "Name Open Print Publish Read Repeat Require Retry Revoke Select Set Skew Take Trust Use"
)


def commands(node: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group with the words that are typed."""
    yield path, node
    for name, child in getattr(node, "commands", {}).items():
        yield from commands(child, f"{path} {name}".strip())


COMMANDS = dict(commands(get_command(app)))
LEAVES = {path: node for path, node in COMMANDS.items() if not hasattr(node, "commands")}
each = pytest.mark.parametrize("path", [path for path in COMMANDS if path])


def shown(path: str) -> str:
    """Return the help of a command at 80 columns."""
    node = COMMANDS[path]
    context = click.Context(node, info_name=f"fedwatt {path}", terminal_width=80)
    return node.get_help(context)


def help_of(option: click.Option) -> str:
    return str(option.help)


def options(node: click.Command) -> list[click.Option]:
    return [parameter for parameter in node.params if isinstance(parameter, click.Option)]


@each
def test_a_command_begins_with_a_verb_and_has_one_line(path: str) -> None:
    text, _, more = (COMMANDS[path].help or "").strip().partition("\n")
    assert text.split()[0] in VERBS.split()
    assert not more or path.split()[0] in HIDDEN
    assert len(text) <= COMMAND_LINE
    assert text.endswith(".")


@pytest.mark.parametrize("path", LEAVES)
def test_every_parameter_has_one_line(path: str) -> None:
    for parameter in LEAVES[path].params:
        text = getattr(parameter, "help", "")
        assert text, parameter.name
        if isinstance(parameter, click.Option):
            assert text.split()[0] in OPTION_VERBS.split(), text
        assert "\n" not in text
        assert len(text) <= OPTION_LINE, f"{parameter.name}: {text}"


@pytest.mark.parametrize("path", LEAVES)
def test_defaults_are_shown(path: str) -> None:
    text = " ".join(shown(path).split())
    for option in options(LEAVES[path]):
        if option.default in (None, "", False, ()) or option.required:
            continue
        assert option.show_default or "[default: " in str(option.help), option.name
    for default in re.findall(
        r"\[default: [^\]]*\]", " ".join(map(help_of, options(LEAVES[path])))
    ):
        assert default in text


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_on_one_screen(path: str) -> None:
    lines = shown(path).splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80


def test_an_option_means_the_same_in_every_command() -> None:
    meanings: dict[str, dict[str, list[str]]] = {}
    for path, node in LEAVES.items():
        for option in options(node):
            for name in option.opts:
                meaning = help_of(option).partition(" [default: ")[0]
                meanings.setdefault(name, {}).setdefault(meaning, []).append(path)
    assert {name: texts for name, texts in meanings.items() if len(texts) > 1} == {}


def test_every_entry_of_the_first_screen_begins_with_a_verb() -> None:
    for line in re.findall(r"^  (?:[a-z]+) +(\w[^\n]*)$", shown(""), re.MULTILINE):
        assert line.split()[0] in VERBS.split(), line


def test_commands_stand_in_panels() -> None:
    text = shown("")
    panels = re.findall(r"^(\w+)[^:\n]*:$", text, re.MULTILINE)
    assert panels == ["Options", "Train", "Predict", "Data", "Deploy", "Analyse", "Maintain"]
    assert all(text.index("Maintain") < text.index(f"\n  {name} ") for name in HIDDEN)


PRINT_TABLES = {
    "change": ["data describe"],
    "deploy": ["deploy status"],
    "elevation": ["elevation compare"],
    "importing": [],  # `data map` writes the columns that `data import auto` shows, as TOML
    "inspect": ["inspect"],
    "listing": ["list"],
    "predict": ["predict"],
    "progress": ["run"],
    "results": ["runs list", "runs compare"],
    "route": ["route"],
    "tune": ["tune"],
}
"""Module of fedwatt.cli that prints tables → its commands that do."""


def test_every_command_that_prints_a_table_prints_json() -> None:
    calls = re.compile(r"\b(?:Table|Table\.grid|plain_table|print_table|ruled_table)\(")
    sources = {path.stem: path.read_text() for path in Path(cli.__file__).parent.rglob("*.py")}
    printing = {name for name, text in sources.items() if calls.search(text)} - {"console"}
    assert printing == PRINT_TABLES.keys()
    for path in (path for paths in PRINT_TABLES.values() for path in paths):
        assert any("--json" in option.opts for option in options(LEAVES[path])), path
