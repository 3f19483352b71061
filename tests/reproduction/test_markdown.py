"""The page is a function of the records alone."""

from pathlib import Path

from reproduction.catalogue import STUDIES
from reproduction.controls import stress_cells_of
from reproduction.lab import Lab
from reproduction.markdown import ROOT, differing, with_summary, write_markdown
from reproduction.record import scale_of_records
from reproduction.scale import scale_of
from tests.reproduction.records import VED, lab_of


def test_records_give_the_committed_page_byte_for_byte(tmp_path) -> None:
    records = ROOT / "results" / "reproduction"
    lab = Lab(scale_of(scale_of_records(records)), tmp_path / "lab", records=records)
    write_markdown(lab, tmp_path / "reproduction.md")
    assert differing(tmp_path, ROOT / "docs") == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_summary(readme, lab) == readme


def test_a_page_that_was_edited_by_hand_is_found(tmp_path) -> None:
    def page(name: str, text: str, figure: str) -> Path:
        folder = tmp_path / name
        (folder / "figures").mkdir(parents=True)
        (folder / "reproduction.md").write_text(text)
        (folder / "figures" / f"reproduction_{figure}.svg").write_text("x")
        return folder

    made, same, other = page("a", "1", "f"), page("b", "1", "f"), page("c", "2", "g")
    assert differing(made, same) == []
    assert differing(made, other) == [
        "figures/reproduction_f.svg",
        "figures/reproduction_g.svg",
        "reproduction.md",
    ]


def test_the_page_says_what_has_run_and_which_verdicts_have_fewer_comparisons(tmp_path) -> None:
    quiet = stress_cells_of(VED, "ved")["low participation, C = 0.1"]
    lab = lab_of(tmp_path, [quiet[f"FO-RI-FedAvg, gate {word}"] for word in ("off", "on")])
    text = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    count = len(STUDIES)
    assert f"- Of {count} studies 0 have run in full, 2 in part and {count - 2} not at all." in text
    assert "- Comparisons are missing from C5 on ved. These claims fail without them" in text
    assert "- Not settled, or in part only: C1 on ved, " in text
    assert "*Partly run: 2 of " in text and "reproduce stress --scale paper` continues" in text
