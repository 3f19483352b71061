"""What the README and the documentation show is what happens."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from fedwatt.cli import app
from fedwatt.runs.config import from_tables

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


PYTHON = [(page.name, text) for page in PAGES for text in blocks(page, "python")]
TOML = [(page.name, text) for page in PAGES for text in blocks(page, "toml")]


@pytest.mark.parametrize(("page", "text"), PYTHON)
def test_python_examples_run(page: str, text: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, page, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "text"), TOML)
def test_configurations_are_valid(page: str, text: str) -> None:
    from_tables(tomllib.loads(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    command = get_command(app)
    for line in re.findall(r"`(?:\$ )?fedwatt ([^`]+)`", page.read_text(encoding="utf-8")):
        words, node = line.split(), command
        while words and words[0] in getattr(node, "commands", {}):
            node = node.commands[words.pop(0)]
        assert node is not command, f"{page.name}: 'fedwatt {line}' is no command"
        known = {option for parameter in node.params for option in parameter.opts} | {"--help"}
        for option in re.findall(r"(?<!\S)--[a-z-]+", " ".join(words)):
            assert option in known, f"{page.name}: 'fedwatt {line}' has no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
