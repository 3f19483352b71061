"""What of a study has run: studies are rarely all or nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan

from fedwatt.report.statistics import Estimate
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import Table
from reproduction.cell import Cell
from reproduction.order import identity
from reproduction.show import MISSING
from reproduction.study import Study, View


@dataclass(frozen=True)
class Done:
    """How many of a study's cells have run."""

    ran: int
    cells: int
    begun: bool
    """Whether a cell ran that no earlier study needs; of a study without such, any cell."""

    @property
    def complete(self) -> bool:
        """Whether all of them have."""
        return 0 < self.cells == self.ran


def done(studies: Iterable[Study], view: View) -> dict[str, Done]:
    """Name → what has run, of studies in the order of the paper."""
    scale, found = view.setting.scale, {}
    earlier: set[str | Cell] = set()
    for study in studies:
        cells = {identity(cell, scale): cell for cell in study.cells(view.setting)}
        ran = {name for name, cell in cells.items() if view.get(cell) is not None}
        own = set(cells) - earlier
        found[study.name] = Done(len(ran), len(cells), bool(ran & own if own else ran))
        earlier |= set(cells)
    return found


def only_run(table: Table) -> tuple[Table, list[str], list[str]]:
    """The table without rows that have not run; their names; names of rows with one regime only.

    Of a row over several regimes one alone says nothing, and is left out as well: it is the one of
    the main results.
    """
    ours = [
        place
        for place, column in enumerate(table.columns)
        if place and not {"printed", "difference", "p,"} & set(column.title.lower().split())
    ]
    kept, empty, single = [], [], []
    for row in table.rows:
        present = sum(not _nothing(row[place]) for place in ours)
        if present == 0:
            empty.append(str(row[0]))
        elif present == 1 and MISSING in row:
            single.append(str(row[0]))
        else:
            kept.append(row)
    return replace(table, rows=tuple(kept)), empty, single


def _nothing(entry: Entry) -> bool:
    if isinstance(entry, Estimate):
        return entry.seeds == 0
    if isinstance(entry, float):
        return isnan(entry)
    return entry in (MISSING, "–", "reference")
