"""The page is a function of the records alone."""

from pathlib import Path

from reproduction.lab import Lab
from reproduction.markdown import ROOT, differing, with_summary, write_markdown
from reproduction.record import scale_of_records
from reproduction.scale import scale_of


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
