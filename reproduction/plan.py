"""What a reproduction would do: its cells and their local steps."""

from collections.abc import Sequence

from rich.table import Table

from reproduction.cell import Cell
from reproduction.lab import Lab
from reproduction.order import all_cells, grouped, identity
from reproduction.study import Setting, Study


def plan_table(lab: Lab, setting: Setting, studies: Sequence[Study]) -> Table:
    """Cells and sequential local steps of each study, counted where they first occur."""
    table = Table(title=f"Plan at scale '{lab.scale.name}': {lab.scale.what_for}")
    for name in (
        "Study",
        "New cells",
        "of these tuning",
        "already run",
        "Local steps",
        "in shared stacks",
    ):
        table.add_column(name, justify="left" if name == "Study" else "right")
    seen: set[str | Cell] = set()
    totals = [0, 0, 0, 0, 0]
    for study in studies:
        cells = all_cells(study.cells(setting), lab.scale)
        new = [cell for cell in cells if identity(cell, lab.scale) not in seen]
        seen |= {identity(cell, lab.scale) for cell in new}
        missing = [cell for cell in new if lab.get(cell) is None]
        counts = [
            len(new),
            sum(cell.purpose == "trial" for cell in new),
            len(new) - len(missing),
            sum(lab.steps(cell) for cell in missing),
            sum(max(lab.steps(cell) for cell in group) for group in grouped(missing, lab.scale)),
        ]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        table.add_row(study.name, *(f"{count:,}" for count in counts))
    table.add_section()
    table.add_row("all", *(f"{count:,}" for count in totals))
    table.caption = (
        "A local step trains the whole stack (all seeds and participants) on one batch; a round "
        "has as many as its longest participant. On a GPU, cells of one composition share a stack."
    )
    return table
