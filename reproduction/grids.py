"""Studies that `studies.toml` describes: grids of methods and conditions, and ablations."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from importlib.resources import files
from typing import Any, Final

from reproduction.cell import METHODS, Cell
from reproduction.figures import sweep
from reproduction.main_results import plain, tuned
from reproduction.record import REACH, Record
from reproduction.study import Findings, Picture, Setting, Study, View
from reproduction.tables import Line, against, comparison, line, matrix

Grid = dict[str, list[Cell]]
"""Method → its cell under each condition"""
OURS: Final = "fo-ri-fedavg"
CAPTION: Final = "Mean over seeds that did not diverge; bars are their standard deviation."
TABLE: Final = tomllib.loads(
    files("reproduction").joinpath("studies.toml").read_text(encoding="utf-8")
)
GRIDS: Final[dict[str, dict[str, Any]]] = {entry["name"]: entry for entry in TABLE["grid"]}
ABLATIONS: Final[dict[str, dict[str, Any]]] = {entry["name"]: entry for entry in TABLE["ablation"]}
SHARES: Final = tuple(column["participation"] for column in GRIDS["drift-shares"]["columns"])
SIZES: Final = tuple(column["vehicles"] for column in GRIDS["scaling"]["columns"])
KINDS: Final = tuple(column["kind"] for column in GRIDS["vehicle-types"]["columns"])


def best(setting: Setting, dataset: str, method: str) -> Cell:
    """Return a tuned method with the seeds of studies of many cells."""
    return replace(tuned(setting.scale, dataset, method), seeds=setting.scale.few_seeds)


def variant(dataset: str, settings: Mapping[str, Any]) -> Cell:
    """Return FO-RI-FedAvg with some settings changed; with none, the cell of the main results."""
    return plain(dataset, OURS).with_settings(settings)


def grid_of(name: str, setting: Setting, dataset: str) -> Grid:
    """Return the cells of a grid on a dataset."""
    entry = GRIDS[name]
    start = partial(best, setting) if entry["start"] == "tuned" else plain
    changes = [changes_of(column, setting) for column in entry["columns"]]
    return {
        method: [replace(start(dataset, method), **change) for change in changes]
        for method in entry.get("methods", METHODS)
    }


def datasets_of(entry: Mapping[str, Any], setting: Setting) -> list[tuple[str, str]]:
    """Return the (printed dataset, dataset) pairs of a study."""
    return {
        "first": setting.few_places[:1],
        "few": setting.few_places,
        "all": setting.places,
        "fleet": [("", setting.fleet)],
    }[entry.get("places", "all")]


def changes_of(column: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return the fields of a cell that a column changes; some may name a field of the scale."""
    names = {field.name for field in fields(Cell)}
    changes = {field: value for field, value in column.items() if field in names}
    for field in ("stride", "rounds", "seeds"):
        if isinstance(changes.get(field), str):
            changes[field] = getattr(setting.scale, changes[field])
    return changes


def measured(
    name: str, record: Record | None, column: str, view: View, printed_row: str = ""
) -> Line:
    """Return the row of a record: the final error of every seed, or its drift around t = 200."""
    final = line(name, record, column, printed_row)
    if record is None or not column.startswith("drift"):
        return final
    if column == "drift_cv" and record.rounds["participants"].max(initial=0) < 2:
        return replace(final, values={})  # drift has no dispersion over a single participant
    return replace(final, values=record.around(column, view.setting.scale.at(200), REACH))


def _printed(table: Mapping[str, Any], place: str, column: str = "") -> tuple[str, str] | None:
    if "printed" not in table:
        return None
    words = {"place": place.lower(), "Place": place, "column": column}
    name, heading = (text.format(**words) for text in table["printed"])
    return name, heading


def show_grid(name: str, view: View) -> Findings:
    """Show every table of a grid on its datasets, and FO-RI-FedAvg's error against all others."""
    entry = GRIDS[name]
    blocks = []
    pictures = []
    conditions = [column["name"] for column in entry["columns"]]
    for place, dataset in datasets_of(entry, view.setting):
        grid = grid_of(name, view.setting, dataset)
        note = entry.get("note") or entry["notes"].get(dataset, "")
        for position, table in enumerate(entry["tables"]):
            lines = {
                method: [measured(method, view.get(cell), table["column"], view) for cell in cells]
                for method, cells in grid.items()
            }
            title = f"{entry['title']}, {dataset}: {table['title']}"
            label = f"{name}-{dataset}-{position}"
            block = matrix(
                label,
                title,
                conditions,
                lines,
                unit=table.get("unit", ""),
                digits=table.get("digits", 2),
                printed_columns=[_printed(table, place, condition) for condition in conditions],
                note=note,
            )
            blocks.append(block)
            values = {method: [line.values for line in row] for method, row in lines.items()}
            columns_run = sum(any(column) for column in zip(*values.values(), strict=True))
            if columns_run > 1 and table["title"] not in entry.get("no_figure", ()):
                ticks = [condition.rpartition("= ")[2] for condition in conditions]
                figure = sweep(ticks, values, _axis(table), entry["label"])
                pictures.append(Picture(label, title, figure, CAPTION, block.facts))
            if table["column"] == "test_rmse":
                versus = f"{entry['title']}, {dataset}: FO-RI-FedAvg against each method"
                blocks.append(against(f"{label}-against", versus, conditions, lines))
    return Findings(tuple(blocks), tuple(pictures))


def show_ablation(name: str, view: View) -> Findings:
    """Show every table of an ablation on all datasets."""
    entry = ABLATIONS[name]
    blocks = []
    pictures = []
    variants = {changes["name"]: changes for changes in entry["variants"]}
    for place, dataset in datasets_of(entry, view.setting):
        for position, table in enumerate(entry["tables"]):
            lines = [
                measured(
                    heading,
                    view.get(variant(dataset, _settings(changes))),
                    table["column"],
                    view,
                    changes.get("row", heading),
                )
                for heading, changes in variants.items()
            ]
            title = f"{entry['title']}, {dataset}: {table['title']}"
            label = f"{name}-{dataset}-{position}"
            block = comparison(
                label,
                title,
                lines,
                heading=table["title"],
                unit=table.get("unit", ""),
                digits=table.get("digits", 2),
                printed_column=_printed(table, place),
                reference=entry.get("reference", 0),
                first=entry["label"],
                note=entry.get("note", ""),
            )
            blocks.append(block)
            values = [line.values for line in lines]
            if entry.get("figure") and sum(map(bool, values)) > 1:
                figure = sweep(list(variants), {OURS: values}, _axis(table), entry["label"])
                pictures.append(Picture(label, title, figure, CAPTION, block.facts))
    return Findings(tuple(blocks), tuple(pictures))


def _axis(table: Mapping[str, Any]) -> str:
    """Return the title of a figure's vertical axis."""
    return f"Final test {table['title']}, Wh per window" if "unit" in table else table["title"]


def _settings(variant: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in variant.items() if field not in ("name", "row")}


def _grid_cells(name: str, setting: Setting) -> Sequence[Cell]:
    return [
        cell
        for _, dataset in datasets_of(GRIDS[name], setting)
        for cells in grid_of(name, setting, dataset).values()
        for cell in cells
    ]


def _ablation_cells(name: str, setting: Setting) -> Sequence[Cell]:
    return [
        variant(dataset, _settings(changes))
        for _, dataset in datasets_of(ABLATIONS[name], setting)
        for changes in ABLATIONS[name]["variants"]
    ]


def _studies() -> dict[str, Study]:
    studies = {}
    for entries, cells, show in (
        (GRIDS, _grid_cells, show_grid),
        (ABLATIONS, _ablation_cells, show_ablation),
    ):
        for name, entry in entries.items():
            studies[name] = Study(
                name,
                entry["title"],
                partial(cells, name),
                partial(show, name),
                printed=tuple(entry.get("printed", ())),
                claims=tuple(entry["claims"]),
            )
    return studies


STUDIES: Final = _studies()
