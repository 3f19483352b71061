"""Tables: what counts as a comparison."""

from reproduction.cell import Cell
from reproduction.tables import SAME, comparison, line
from tests.reproduction.records import made


def test_a_training_that_stands_in_two_rows_is_one_comparison() -> None:
    base, moon = (made(Cell(dataset="ved", method=m), e) for m, e in (("fedavg", 50), ("moon", 49)))
    other = made(Cell(dataset="ved", method="scaffold"), 50.1)
    once = [line("FedAvg", base), line("MOON", moon), line("SCAFFOLD", other)]
    again = [*once, line("MOON, tuned", moon), line("FedAvg, tuned", base)]
    alone, both = (comparison("t", "t", lines).table.rows for lines in (once, again))
    assert both[:3] == alone  # the same p and the same smallest effect
    assert both[3][1:] == alone[1][1:]
    assert both[4][1] == alone[0][1] and both[4][2:] == (SAME, "–", "–")
