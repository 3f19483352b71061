"""Pages whose blocks are written from results/ say what is there."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _scripts(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def blocks(script: ModuleType) -> dict[str, str]:
    if hasattr(script, "RESULTS"):
        return script.tables(json.loads(script.RESULTS.read_text(encoding="utf-8")))
    return script.blocks()


@pytest.mark.parametrize("name", ["performance_tables", "scale", "method_costs"])
def test_pages_are_up_to_date(name: str) -> None:
    script = import_module(name)
    text = script.PAGE.read_text(encoding="utf-8")
    assert import_module("marked").filled(text, blocks(script)) == text


def test_a_block_replaces_what_is_between_its_marks() -> None:
    filled = import_module("marked").filled
    page = "before <!-- a -->old<!-- /a --> between <!-- b --><!-- /b --> after"
    new = filled(page, {"b": r"\1", "a": "new"})
    assert new == (
        "before <!-- a -->\n\nnew\n\n<!-- /a --> between <!-- b -->\n\n\\1\n\n<!-- /b --> after"
    )
    assert filled(new, {"b": r"\1", "a": "new"}) == new


@pytest.mark.parametrize("page", ["nowhere", "<!-- a --><!-- /a --> <!-- a --><!-- /a -->"])
def test_a_block_needs_one_place(page: str) -> None:
    with pytest.raises(SystemExit, match=r"[02] places"):
        import_module("marked").filled(page, {"a": "new"})
