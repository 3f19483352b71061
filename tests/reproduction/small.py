"""A lab of the smallest scale, in which a few cells have run."""

from dataclasses import replace

from reproduction.cell import Cell
from reproduction.scale import SCALES

TINY = replace(
    SCALES["smoke"], rounds=2, synthetic_trips=4, synthetic_stride=20, trials=2, tuning_rounds=1
)


class Counting:
    """An observer that remembers which cells were trained."""

    def __init__(self) -> None:
        self.trained: list[Cell] = []

    def say(self, text: str) -> None: ...

    def round_done(self, done: int, rounds: int) -> None: ...

    def cell_begins(self, cell: Cell) -> None:
        self.trained.append(cell)

    def cell_ends(self, cell: Cell, record) -> None: ...


def cells_of_a_run() -> list[Cell]:
    fo = Cell(dataset="synthetic", method="fo-fedavg", vehicles=3, participation=1.0)
    ri = replace(fo, method="ri-fedavg")
    return [
        fo,
        replace(fo, method="fedavg", follow="matched rate"),
        replace(fo, method="fedprox", follow="matched pull"),
        ri,
        replace(fo, method="fedavg", follow="tuned"),
        replace(fo, method="fedavg", work="pooled"),
    ]
