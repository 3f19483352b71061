"""Pages whose blocks are written from results/ say what is there."""

import json
from importlib import import_module
from types import ModuleType

import pytest

from benchmarks.marked import filled


def blocks(script: ModuleType) -> dict[str, str]:
    if hasattr(script, "RESULTS"):
        return script.tables(json.loads(script.RESULTS.read_text(encoding="utf-8")))
    return script.blocks()


PAGES = (
    "edge_ved",
    "engine",
    "method_costs",
    "journeys_routes",
    "journeys_tables",
    "edge_adapt",
    "edge_serve",
    "elevation_reference",
    "local_baselines",
)


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    script = import_module(f"benchmarks.{name}")
    text = script.PAGE.read_text(encoding="utf-8")
    assert filled(text, blocks(script)) == text


def test_a_block_replaces_what_is_between_its_marks() -> None:
    page = "before <!-- a -->old<!-- /a --> between <!-- b --><!-- /b --> after"
    new = filled(page, {"b": r"\1", "a": "new"})
    assert new == (
        "before <!-- a -->\n\nnew\n\n<!-- /a --> between <!-- b -->\n\n\\1\n\n<!-- /b --> after"
    )
    assert filled(new, {"b": r"\1", "a": "new"}) == new


@pytest.mark.parametrize("page", ["nowhere", "<!-- a --><!-- /a --> <!-- a --><!-- /a -->"])
def test_a_block_needs_one_place(page: str) -> None:
    with pytest.raises(SystemExit, match=r"[02] places"):
        filled(page, {"a": "new"})
