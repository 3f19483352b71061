"""A cell as the configuration of a run."""

import pytest

from reproduction.cell import Cell, run_config
from reproduction.scale import SCALES


@pytest.mark.parametrize(
    ("p_leave", "p_join", "initially"),
    [
        (0.0, 0.0, 1.0),
        (
            0.05,
            0.05,
            0.5,
        ),  # symmetric churn starts at its steady state, p_join / (p_join + p_leave)
        (0.2, 0.2, 0.5),
        (0.2, 0.02, 1.0),  # net loss has everything to lose
        (0.02, 0.2, 0.5),  # net gain has room to grow
    ],
)
def test_churn_starts_where_the_study_says(p_leave: float, p_join: float, initially: float) -> None:
    cell = Cell(dataset="synthetic", method="fedavg", p_leave=p_leave, p_join=p_join)
    availability = run_config(cell, SCALES["paper"]).availability
    assert (availability.p_leave, availability.p_join) == (p_leave, p_join)
    assert availability.initially == initially
