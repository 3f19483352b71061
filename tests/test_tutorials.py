"""The tutorials run, print what they show, and are the notebooks."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("tutorials", ROOT / "tools" / "tutorials.py")
tutorials = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tutorials)

PAGES = tutorials.PAGES
page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def shape(text: str) -> list[str]:
    """Words without numbers, which depend on the machine, and without the frames of tables."""
    text = re.sub(r"[-−+]?\d[\d.,:T-]*", "#", text)
    return re.sub(r"[─-╿\s]+", " ", text).split()


def test_shapes_differ_in_words_only() -> None:
    assert shape("┃ 4.5 Wh ┃\n-12 %") == shape("│ 14.25 Wh │ 3 %") != shape("4.5 km 3 %")


@page
def test_it_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = tutorials.cells(page.read_text(encoding="utf-8"))
    for before, after in zip(blocks, tutorials.executed(blocks), strict=True):
        assert shape(before.output) == shape(after.output), after.text


@page
def test_the_notebook_has_the_same_cells(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = tutorials.cells(text)
    assert tutorials.written(blocks) == text
    remaining = (ROOT / "notebooks" / f"{page.stem}.ipynb").read_text(encoding="utf-8")
    assert remaining == tutorials.notebook(blocks), "write it again: python tools/tutorials.py"
    code = [cell for cell in json.loads(remaining)["cells"] if cell["cell_type"] == "code"]
    assert len(code) == sum(cell.kind != "markdown" for cell in blocks) >= 4
    for cell in json.loads(remaining)["cells"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", "".join(cell["source"])):
            assert (ROOT / "notebooks" / target).exists(), target
