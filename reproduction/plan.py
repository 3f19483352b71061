"""The plan of a reproduction: its cells and their core-hours."""

from collections.abc import Sequence

from rich.table import Table

from fedwatt.runs.provenance import describe_fleet
from reproduction.cell import Cell
from reproduction.hours import progress, progress_table
from reproduction.lab import Lab
from reproduction.page import LabView
from reproduction.study import Setting, Study


def plan_table(lab: Lab, setting: Setting, studies: Sequence[Study]) -> Table:
    """Return cells and core-hours of each study, and what of them is missing."""
    names = dict.fromkeys((*setting.ved, *setting.eved, setting.fleet))
    fleets = [(name, describe_fleet(lab.fleet(Cell(dataset=name, method="")))) for name in names]
    rows = progress_table(progress(studies, LabView(setting, lab), fleets))
    table = Table(title=f"Plan at scale '{lab.scale.name}': {lab.scale.what_for}")
    for column in rows.columns:
        table.add_column(column.title, justify="left" if column is rows.columns[0] else "right")
    for row in rows.text_rows():
        table.add_row(*row)
    table.caption = rows.note
    return table
