"""Commands and outputs in the README and the documentation are the real ones."""

import ast
import json
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fedwatt import plugins
from fedwatt.cli import app
from fedwatt.runs.config import SECTIONS, RunConfig, from_tables
from tools.reference import PAGES as REFERENCES

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


# Blocks of tutorials build on each other: tests/test_tutorials.py runs them.
ALONE = [page for page in PAGES if page.parent.name != "tutorials"]
PYTHON = [(page.name, text) for page in ALONE for text in blocks(page, "python")]
TOML = [(page.name, text) for page in PAGES for text in blocks(page, "toml")]


@pytest.mark.parametrize(("page", "text"), PYTHON)
def test_python_examples_run(page: str, text: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, page, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "text"), TOML)
def test_configurations_are_valid(page: str, text: str) -> None:
    from_tables(tomllib.loads(text))


def test_every_setting_is_documented_with_its_default() -> None:
    (text,) = blocks(ROOT / "docs" / "configuration.md", "toml")
    record = tomllib.loads(text)
    for section, kind in SECTIONS.items():
        assert list(record[section]) == [field.name for field in fields(kind)], section
        assert getattr(from_tables(record), section) == getattr(RunConfig(), section)


def typed_commands(text: str) -> list[str]:
    """Return what follows `fedwatt` in lines of fenced or indented blocks."""
    fence = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^(?: {4}|\t)(.*)$", fence.sub("", text), re.MULTILINE)
    code = "\n".join([*fence.findall(text), *indented]).replace("\\\n", " ")
    return re.findall(r"^\s*(?:\$ )?fedwatt ([^#\n]+)", code, re.MULTILINE)


def commands(text: str) -> list[str]:
    """Return what follows `fedwatt` in backticks and in lines of blocks."""
    return typed_commands(text) + re.findall(r"`(?:\$ )?fedwatt ([^`\n]+)`", text)


def test_commands_are_found_wherever_they_are_shown() -> None:
    text = """
A line of prose with `fedwatt one --a` in it.
fedwatt is no command here.

    $ fedwatt two --b \\
        --c

```console
$ fedwatt three --d   # --not-this
fedwatt four
```
"""
    assert [line.split() for line in commands(text)] == [
        ["three", "--d"],
        ["four"],
        ["two", "--b", "--c"],
        ["one", "--a"],
    ]


COMMAND = get_command(app)


def command_of(line: str) -> tuple[click.Command, list[str]]:
    """Return the command of a line and the words that it gets."""
    words = shlex.split(line.rstrip(" &"))
    node = COMMAND
    while words and words[0] in getattr(node, "commands", {}):
        node = node.commands[words.pop(0)]
    if hasattr(node, "default"):  # a group with a command that need not be named
        node = node.commands[node.default]
    return node, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_typed_commands_are_accepted(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "trust", lambda *names: None)
    for line in typed_commands(page.read_text(encoding="utf-8")):
        node, words = command_of(line)
        try:
            node.make_context("fedwatt", words)
        except click.UsageError as error:
            pytest.fail(f"{page.name}, 'fedwatt {line}': {error.format_message()}")
        except click.exceptions.Exit:  # --help
            continue


def trouble_with(line: str) -> str:
    """Return the fault of a shown command; nothing if it and its options exist."""
    node, words = command_of(line)
    if node is COMMAND:
        return f"'fedwatt {line}' is no command"
    reference = {"--help"}
    for parameter in node.params:
        reference.update(parameter.opts, parameter.secondary_opts)
    matches = re.findall(r"(?<!\S)--[a-z-]+", " ".join(words))
    unknown = [option for option in matches if option not in reference]
    return f"'fedwatt {line}' has no option {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for line in commands(page.read_text(encoding="utf-8")):
        assert not trouble_with(line), page.name


@pytest.mark.parametrize("name", REFERENCES)
def test_references_are_what_the_code_says(name: str) -> None:
    output = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert output == REFERENCES[name](), "write it again: python tools/reference.py"


def command_paths(node: click.Command, path: str = "") -> list[str]:
    """Return the words of every command that can be called, such as "data import"."""
    inner = getattr(node, "commands", {})
    if not inner:
        return [path]
    return [
        leaf for name, child in inner.items() for leaf in command_paths(child, f"{path} {name}")
    ]


def test_every_command_of_users_is_on_its_page() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    maintenance = ("compare", "reproduce", "bench")
    assert re.findall(r"^## fedwatt( .+)$", text, re.MULTILINE) == [
        path for path in command_paths(COMMAND) if path.split()[0] not in maintenance
    ]


def test_every_generated_page_is_written_by_the_tool() -> None:
    folder = ROOT / "docs" / "methods"
    assert {f"methods/{path.name}" for path in folder.iterdir()} == {
        name for name in REFERENCES if name.startswith("methods/")
    }


def test_every_page_is_on_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"([\w/-]+\.md)$", text, re.MULTILINE)
    present = [path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1 : -len(EXAMPLES)]]
    assert sorted(listed) == sorted(present)
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    families = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for name in present:
        assert name == "index.md" or f"]({name})" in (families if "methods/" in name else index)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8"))
    for target, anchor in links:
        if target.startswith("../../actions"):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    folders = ("fedwatt", "tests", "benchmarks", "reproduction", "comparison", "tools")
    named = rf"`((?:{'|'.join(folders)})/[\w/-]+\.\w+)`"
    for path in re.findall(named, page.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{page.name} names {path}"


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.splitlines()) <= 110
    assert len(README.split()) <= 900


def test_the_readme_quotes_the_elevation_map_that_was_drawn() -> None:
    record = json.loads((ROOT / "results" / "elevation_map.json").read_text(encoding="utf-8"))
    assert f"these {record['vehicles']} cars" in README
    assert f"{record['terrain_model']['median_m']:.1f} m (median) from NASA's survey" in README


def test_the_readme_quotes_the_error_of_the_shipped_model() -> None:
    shipped = ROOT / "fedwatt" / "edge" / "pretrained" / "measured.json"
    median, *_ = json.loads(shipped.read_text(encoding="utf-8"))["errors"]["mass known"]
    assert f"`leaf-24` errs by {median:.1f} % on unseen cars" in README


def test_the_first_route_of_the_readme_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = (line for line in commands(README) if line.startswith("route examples/"))
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, line.split())
    assert done.output.startswith("You arrive with "), done.output


HABITS = re.compile(
    r"\bof (?:its|one's|their|your|his) own\b|\bwhoever\b|\bkept model|\bborne? out\b"
    r"|\bpersonal models?\b|\bnewcomers?\b|\bon board\b|\blikes best\b|\bnothing clear\b"
    r"|\bembedded fleet\b|\bhand(?:s|ed)? up\b|\bjudge[ds]?\b|\breal fleet\b|\bunder masks\b"
    r"|\bsecure sums\b|\blying server\b|\bgo(?:es)? on\b|\blevel model\b|\breckoned\b"
    r"|\bwhat (?:is|was) (?:there|left|known|kept|asked)\b|\ba thing\b|\bdepot\b"
    r"|\bone's own\b|\bbesides\b|\berror bars\b|, too[.,;]|\bin the mean\b",
    re.IGNORECASE,
)
"""Phrases that the vocabulary of the project replaces."""


def help_texts() -> str:
    """Return the help of every command and option."""
    nodes = [COMMAND]
    texts = []
    while nodes:
        node = nodes.pop()
        nodes += getattr(node, "commands", {}).values()
        texts += [node.help or "", *(getattr(p, "help", "") or "" for p in node.params)]
    return "\n".join(texts)


TEMPLATES = sorted((ROOT / "fedwatt").rglob("*.jinja")) + sorted((ROOT / "fedwatt").rglob("*.html"))
READ = {path.relative_to(ROOT).as_posix(): path for path in (*PAGES, *TEMPLATES)}


@pytest.mark.parametrize("name", [*READ, "help texts"])
def test_no_page_has_the_habits_that_the_vocabulary_replaces(name: str) -> None:
    text = help_texts() if name == "help texts" else READ[name].read_text(encoding="utf-8")
    result = [text[max(0, m.start() - 40) : m.end() + 30] for m in HABITS.finditer(text)]
    assert not result


SOURCES = [
    path
    for folder in ("fedwatt", "comparison", "reproduction")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def messages(source: Path) -> list[str]:
    """Return the strings of a module that are no docstrings."""
    nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    return [
        str(node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]


def test_no_message_has_the_habits_that_the_vocabulary_replaces() -> None:
    offending = [
        f"{source.name}: {text}"
        for source in SOURCES
        for text in messages(source)
        if HABITS.search(text)
    ]
    assert offending == []


DOCS = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_begins_with_its_readers(page: Path) -> None:
    begin = page.read_text(encoding="utf-8").splitlines()[:12]
    assert any(re.match(r"For .*\byou (?:can|know)\b", line) for line in begin)


GENERATED = [
    "configuration.md",
    *(name for name in REFERENCES if name not in ("configuration.md", "data.md", "methods.md")),
]
HOW_TO = 1200
MAX_WORDS = {
    "tutorials/first-federation.md": 1100,
    "tutorials/your-fleet.md": 1100,
    "tutorials/into-the-car.md": 1100,
    "design.md": 2000,
    "methods.md": 3000,
    "privacy.md": 1800,
    "accuracy.md": 1500,
    "performance.md": 800,
    "scale.md": 900,
    "journeys.md": 1000,
    "reproduction.md": 1500,
    "which-method.md": 900,
    "glossary.md": 500,
}
"""Page → its most words; how-to guides and all other pages have `HOW_TO`."""


def test_the_documentation_is_short() -> None:
    words = {
        page.relative_to(ROOT / "docs").as_posix(): len(page.read_text(encoding="utf-8").split())
        for page in DOCS
    }
    assert sum(words.values()) <= 40_000
    assert sum(words[name] for name in GENERATED) <= 16_000
    too_long = {
        name: count
        for name, count in words.items()
        if name not in GENERATED and count > MAX_WORDS.get(name, HOW_TO)
    }
    assert too_long == {}


def test_the_habits_are_found() -> None:
    assert HABITS.search("The kept model, with hills of its own.")
    assert not HABITS.search("The final model, with its elevation map.")
