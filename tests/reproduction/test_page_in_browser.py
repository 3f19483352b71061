"""The report of a reproduction in a real browser: figures render, the method switches work.

Chromium opens a copy of the page with a script behind it that tries everything and writes down what
it saw. CI points FEDWATT_REPORT at the page of all studies; without it a small one is made here.
"""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedwatt.cli import app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: install Debian's package 'chromium' to run these"
)

CHECK = """
<script>
addEventListener("load", function () {
  function seen(part) { return getComputedStyle(part).display !== "none"; }
  function of(part) { return part.getAttribute("data-series").split(" (")[0]; }
  var parts = Array.from(document.querySelectorAll("[data-series]"));
  var found = {
    width: innerWidth,
    overflow: document.documentElement.scrollWidth - innerWidth,
    figures: Array.from(document.querySelectorAll("figure")).map(function (figure) {
      var svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
      var marks = svg.querySelectorAll("path, use, text");
      var broken = Array.from(svg.querySelectorAll("path")).filter(function (path) {
        return /NaN|inf/i.test(path.getAttribute("d") || "");
      });
      return {id: figure.id, width: box.width, height: box.height, marks: marks.length,
              broken: broken.length};
    }),
    tables: document.querySelectorAll("table").length,
    switches: Array.from(document.querySelectorAll("[data-toggle]")).map(function (box) {
      var own = parts.filter(function (p) { return of(p) === box.dataset.toggle; });
      var others = parts.filter(function (p) { return of(p) !== box.dataset.toggle; });
      var before = own.filter(seen).length;
      box.click();
      var hidden = own.filter(seen).length, untouched = others.every(seen);
      box.click();
      return {method: box.dataset.toggle, parts: own.length, before: before, hidden: hidden,
              untouched: untouched, after: own.filter(seen).length};
    }),
  };
  var table = Array.from(document.querySelectorAll("table.sortable")).find(function (t) {
    return t.tBodies[0].rows.length > 2;
  });
  function column() {
    return Array.from(table.tBodies[0].rows).map(function (row) {
      return parseFloat(row.cells[2].textContent);
    });
  }
  table.tHead.rows[0].cells[2].querySelector("button").click();
  found.ascending = column();
  table.tHead.rows[0].cells[2].querySelector("button").click();
  found.descending = column();
  var input = document.querySelector(".search input");
  var cards = Array.from(document.querySelectorAll(".study .card"));
  function search(text) {
    input.value = text;
    input.dispatchEvent(new Event("input"));
    return cards.filter(function (card) { return card.offsetParent !== null; }).length;
  }
  found.search = {
    all: search(""), drift: search("drift"), none: search("zebra"), again: search(""),
  };
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""

# A window of Chromium is at least 500 pixels wide; a frame in it may be as narrow as a phone.
FRAME = """<!doctype html>
<script>
addEventListener("message", function (event) {
  document.body.innerHTML = "<pre id=found></pre>";
  document.getElementById("found").textContent = event.data;
});
</script>
<body style="margin: 0">
<iframe src="PAGE" style="width: WIDTHpx; height: 900px; border: 0"></iframe>
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    if looked_up := os.environ.get("FEDWATT_REPORT"):
        return Path(looked_up)
    out = tmp_path_factory.mktemp("reproduction")
    studies = ["convergence", "drift", "seeds", "alpha", "components"]
    options = ["--dataset", "synthetic"]
    result = CliRunner().invoke(app, ["reproduce", *studies, *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out / "smoke" / "report.html"


def looked_at(report: Path, width: int, folder: Path) -> dict:
    page = folder / "page.html"
    text = report.read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", CHECK + "</body>"), encoding="utf-8")
    frame = folder / "frame.html"
    changed = FRAME.replace("PAGE", page.name).replace("WIDTH", str(width))
    frame.write_text(changed, encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,900",
        "--virtual-time-budget=20000",
        "--dump-dom",
        frame.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    return json.loads(unescape(match[1]))


@pytest.mark.parametrize("width", [1280, 400], ids=["desktop", "phone"])
def test_every_figure_renders_and_nothing_is_wider_than_the_page(report, width, tmp_path) -> None:
    page_state = looked_at(report, width, tmp_path)
    assert page_state["width"] == width
    assert page_state["overflow"] <= 0
    assert page_state["tables"] >= 5
    assert len(page_state["figures"]) >= 5
    for figure in page_state["figures"]:
        assert figure["width"] > 200 and figure["height"] > 60, figure
        assert figure["marks"] > 10 and figure["broken"] == 0, figure


def test_a_switch_hides_its_method_everywhere_and_brings_it_back(report, tmp_path) -> None:
    switches = looked_at(report, 1280, tmp_path)["switches"]
    assert len(switches) >= 2
    for switch in switches:
        assert switch["parts"] == switch["before"] > 2, switch
        assert switch["hidden"] == 0 and switch["untouched"], switch
        assert switch["after"] == switch["before"], switch


def test_tables_sort_and_the_search_filters(report, tmp_path) -> None:
    page_state = looked_at(report, 1280, tmp_path)
    numbers = [value for value in page_state["ascending"] if value is not None]
    assert len(numbers) > 2 and numbers == sorted(numbers)
    assert [value for value in page_state["descending"] if value is not None] == numbers[::-1]
    search = page_state["search"]
    assert 0 < search["drift"] < search["all"] == search["again"] and search["none"] == 0
