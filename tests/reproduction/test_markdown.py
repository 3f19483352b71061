"""The page and README's verdict are functions of the records alone."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.claims import ASSERTIONS, headline_verdicts
from reproduction.lab import Lab
from reproduction.main_results import tuned
from reproduction.markdown import BEGIN, END, ROOT, readme_block, with_block, write_markdown
from reproduction.record import scale_of_records
from reproduction.scale import scale_of
from reproduction.study import View, setting_of

PAGE = ROOT / "docs" / "reproduction.md"


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    records = ROOT / "results" / "reproduction"
    folder = tmp_path_factory.mktemp("lab")
    lab = Lab(scale_of(scale_of_records(records)), folder, records=records)
    return View(setting_of(lab), lab)


def test_records_give_the_committed_page_and_readme_byte_for_byte(view, tmp_path) -> None:
    made = write_markdown(view.lab, tmp_path / "reproduction.md")
    assert made.read_bytes() == PAGE.read_bytes()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert BEGIN in readme and END in readme
    assert with_block(readme, view) == readme


def test_verdicts_judged_again_are_those_of_page_and_readme(view) -> None:
    page = PAGE.read_text(encoding="utf-8")
    judged = headline_verdicts(view)
    assert [verdict.claim for verdict in judged] == list(ASSERTIONS)
    for verdict in judged:
        row = (
            f"| {verdict.claim} | {verdict.assertion} | **{verdict.outcome}** | {verdict.number} |"
        )
        assert row in page.splitlines()[:25]
    supported = sum(verdict.outcome == "supported" for verdict in judged)
    count = ("None", "One", "Two", "Three", "Four", "Five", "Six", "Seven")[supported]
    assert page.count(f"{count} of the paper's seven claims") == 1
    assert f"{count} of the paper's seven claims" in readme_block(view)


def test_an_altered_record_changes_the_verdict_and_the_page(view, tmp_path) -> None:
    key, record = next(
        (key, record)
        for key, record in view.lab._known.items()
        if record is view.get(tuned(view.setting.scale, "ved", "fo-ri-fedavg"))
    )
    better = dict(record.rounds) | {"test_rmse": record.rounds["test_rmse"] * np.float32(0.5)}
    records = dict(view.lab._known) | {key: replace(record, rounds=better)}
    altered = replace(view.lab, out=tmp_path, _known=records, _settings={}, records=None)
    page = write_markdown(altered, tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "lower than 10 of 30 tuned rivals" in page
    assert page != PAGE.read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_block(readme, View(view.setting, altered)) != readme


def test_the_page_and_the_block_are_short(view) -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 1500
    assert len(readme_block(view).split()) <= 120


def test_a_block_that_was_edited_by_hand_is_found(view) -> None:
    edited = f"before {BEGIN} All seven claims hold. {END} after"
    assert with_block(edited, view) == f"before {readme_block(view)} after"
    assert with_block("no marks", view) == "no marks"
