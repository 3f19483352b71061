import re
import shutil
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import escape

from fedwatt.errors import RunError
from fedwatt.report.figures.results import FIGURES
from fedwatt.report.load import load_run, load_runs, run_facts, where
from fedwatt.report.style import name_of
from fedwatt.report.write import NEXT_STEPS, write_report
from tests.report.conftest import CONFIG, add_personal, make_run
from tests.report.test_baselines import with_references
from tests.test_docs import trouble_with

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checker(HTMLParser):
    """Balance of tags, identifiers and baselines of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.baselines: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src"):
                if value.startswith("#"):
                    self.baselines.append(value)
                elif not value.startswith("data:text/csv;base64,"):
                    self.loaded.append(value)
            self.baselines += re.findall(r"url\((#[^)]*)\)", value or "")

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
    assert not list(folder.rglob("*.pdf"))
    for name in (
        "results",
        "differences",
        "strata",
        "time",
    ):
        for kind in ("md", "csv"):
            assert (folder / "tables" / f"{name}.{kind}").read_text(encoding="utf-8")
    assert not list(folder.rglob("*.part"))


def test_page_stands_alone_and_is_well_formed(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.loaded == [], "the page must load nothing"
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
    assert len(set(checker.ids)) == len(checker.ids)
    assert {reference[1:] for reference in checker.baselines} <= set(checker.ids)


def test_page_has_figures_tables_and_configuration(page):
    assert page.count("<svg ") == len(FIGURES) and page.count("<table>") == 4
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
        result = {unescape(value) for value in re.findall(rf'data-{kind}="([^"]*)"', page)}
        assert result == {"fedavg", label}


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


@pytest.mark.usefixtures("brief")
def test_rounds_and_seeds_are_listed_where_runs_differ(tmp_path):
    long = make_run(tmp_path / "long", methods=("fedavg",))
    short = make_run(tmp_path / "short", methods=("fedprox",), seeds=(1,), last_round=12)
    facts = dict(run_facts(load_runs([long, short])))
    assert facts["Rounds"] == "12 to 30"
    assert facts["Seeds"] == "1, 2, 3"
    assert dict(run_facts(load_run(long)))["Rounds"] == "30"
    page = write_report(long, short, out=tmp_path / "both")
    text = page.read_text(encoding="utf-8")
    assert "different numbers of rounds: FedAvg 30, FedProx 12." in text


@pytest.mark.usefixtures("brief")
def test_figures_are_pdf_files_on_request(run_folder, tmp_path):
    write_report(run_folder, out=tmp_path / "out", pdf=True)
    (file,) = (tmp_path / "out" / "figures").glob("*.pdf")
    assert file.read_bytes().startswith(b"%PDF")


def test_one_number_for_each_method_everywhere(tmp_path):
    folder = tmp_path / "run"
    with_references(folder)
    add_personal(folder, factor=0.5)
    page = write_report(folder).read_text(encoding="utf-8")
    text = page.replace("\N{NO-BREAK SPACE}", " ")
    text = unescape(re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.DOTALL))
    run = load_run(folder)
    for method in run.methods:
        name = name_of(method)
        vehicles = where(run.vehicles, method=method, model="personalised", stratum="all")["rmse"]
        number = f"{np.mean(vehicles):.1f}"
        card = re.search(rf"<b>{name}</b>\s*<strong>([\d.]+)", text)
        sentence = re.search(rf"(?<![-\w]){name}(?: has)? ([\d.]+) Wh[,:]", text)
        in_results = re.search(rf"<td>{name}</td>\s*<td>personalised</td>\s*<td>([\d.]+)", text)
        in_baselines = re.search(rf"<td>{name}, personalised</td>\s*<td>([\d.]+)", text)
        figure = re.findall(
            rf'data-series="{method}">\s*<!--.*?-->|data-series="{method}">(?:(?!data-series).)*?'
            r"<text[^>]*>([\d.]+)</text>",
            text,
            re.DOTALL,
        )
        for place in (card, sentence, in_results, in_baselines):
            assert place and place[1] == number
        assert number in figure


def test_the_commands_of_the_next_steps_exist(page):
    commands = [command for _, steps in NEXT_STEPS for command in steps]
    for command in commands:
        assert not trouble_with(command.removeprefix("fedwatt ").format(run="runs/first"))
    assert "fedwatt data import auto FOLDER --out fleets/mine" in page
