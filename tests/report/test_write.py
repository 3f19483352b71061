import re
import shutil
from html import unescape
from html.parser import HTMLParser

import pytest
from markupsafe import escape

from fedwatt.errors import RunError
from fedwatt.report.facts import run_facts
from fedwatt.report.figures import FIGURES
from fedwatt.report.load import load_run, load_runs
from fedwatt.report.write import write_report
from tests.report.conftest import CONFIG, make_run

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checker(HTMLParser):
    """Balance of tags, identifiers and references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src"):
                (self.references if value.startswith("#") else self.loaded).append(value)
            self.references += re.findall(r"url\((#[^)]*)\)", value or "")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(run_folder, tmp_path_factory):
    folder = shutil.copytree(run_folder, tmp_path_factory.mktemp("written") / "first")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_everything_is_written(folder):
    for kind in FIGURES:
        assert (folder / "figures" / f"{kind.name}.svg").stat().st_size > 1000
        assert (folder / "figures" / f"{kind.name}.pdf").read_bytes().startswith(b"%PDF")
    for name in ("results", "differences", "rounds-to-threshold", "strata", "time"):
        for kind in ("md", "tex", "csv"):
            assert (folder / "tables" / f"{name}.{kind}").read_text(encoding="utf-8")
    assert not list(folder.rglob("*.part"))


def test_page_stands_alone_and_is_well_formed(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.loaded == [], "the page must load nothing"
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
    assert len(set(checker.ids)) == len(checker.ids)
    assert {reference[1:] for reference in checker.references} <= set(checker.ids)


def test_page_has_figures_tables_and_configuration(page):
    assert page.count("<svg ") == len(FIGURES) and page.count("<table>") == 5
    for kind in FIGURES:
        assert str(escape(kind.caption)) in page
    assert "seed 2 diverged at round 17" in page
    assert CONFIG.splitlines()[-1].replace('"', "&#34;") in page
    assert "prefers-color-scheme: dark" in page and "d4f1" in page


def test_every_variable_has_a_light_and_a_dark_value(page):
    light, dark = page.split("prefers-color-scheme: dark", 1)
    dark = dark.split("</style>")[0]
    for used in set(re.findall(r"var\((--(?:method|part|ink|muted|grid|paper)[a-z-]*)\)", page)):
        assert f"{used}:" in light and f"{used}:" in dark


@pytest.fixture
def brief(monkeypatch):
    """A report with one figure, where the others add nothing but time."""
    monkeypatch.setattr("fedwatt.report.write.FIGURES", FIGURES[:1])


@pytest.mark.usefixtures("brief")
def test_names_are_escaped(tmp_path):
    label = '<b>"x"&$y'
    folder = make_run(tmp_path / "run", methods=("fedavg", label))
    page = write_report(folder).read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert "<b>&#34;" not in page and '<b>"' not in page
    # The button and the parts of the figures that it hides carry the same label.
    for kind in ("series", "toggle"):
        found = {unescape(value) for value in re.findall(rf'data-{kind}="([^"]*)"', page)}
        assert found == {"fedavg", label}


@pytest.mark.usefixtures("brief")
def test_again_gives_the_same_bytes(run_folder, tmp_path):
    first = write_report(run_folder, out=tmp_path / "a").read_bytes()
    assert write_report(str(run_folder), out=str(tmp_path / "b")).read_bytes() == first


@pytest.mark.usefixtures("brief")
def test_several_runs_on_one_page(run_folder, tmp_path):
    other = make_run(tmp_path / "second", methods=("fedavg", "fedprox"))
    page = write_report(run_folder, other, out=tmp_path / "both")
    assert page == tmp_path / "both" / "report.html"
    text = page.read_text(encoding="utf-8")
    for part in ("FedAvg (first)", "FedAvg (second)", "FedProx", "Fleet of second"):
        assert part in text
    assert text.count("config.toml of") == 2


def test_several_runs_need_a_place(run_folder, tmp_path):
    other = make_run(tmp_path / "second")
    with pytest.raises(RunError, match="--out"):
        write_report(run_folder, other)
    with pytest.raises(RunError, match="at least one"):
        write_report()


@pytest.mark.usefixtures("brief")
def test_runs_that_cannot_be_ranked_have_no_comparison(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(
        tmp_path / "night", methods=("fedprox",), data_hash="ffff", vehicles_are="van"
    )
    page = write_report(first, second, out=tmp_path / "both").read_text(encoding="utf-8")
    written = {path.stem for path in (tmp_path / "both" / "tables").iterdir()}
    assert written == {"results", "strata", "time"}
    assert "Difference from" not in page and "Difference at" not in page
    assert "never" not in page


@pytest.mark.usefixtures("brief")
def test_rounds_and_seeds_are_listed_where_runs_differ(tmp_path):
    long = make_run(tmp_path / "long", methods=("fedavg",))
    short = make_run(tmp_path / "short", methods=("fedprox",), seeds=(1,), last_round=12)
    facts = dict(run_facts(load_runs([long, short])))
    assert facts["Rounds"] == "long: 30; short: 12"
    assert facts["Seeds"] == "long: 1, 2, 3; short: 1"
    assert dict(run_facts(load_run(long)))["Rounds"] == "30"
    page = write_report(long, short, out=tmp_path / "both")
    for name in ("results", "differences", "rounds-to-threshold"):
        note = (page.parent / "tables" / f"{name}.md").read_text(encoding="utf-8")
        assert "different numbers of rounds: FedAvg 30, FedProx 12." in note
