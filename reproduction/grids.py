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
from reproduction.tables import Line, against, comparison, facts_line, matrix

Grid = dict[str, list[Cell]]
"""Method → its cell under each condition"""
Values = list[Mapping[int, float]]
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


def measured(record: Record | None, column: str, view: View) -> Mapping[int, float]:
    """Return the final error of every seed, or its drift around t = 200."""
    if record is None:
        return {}
    if column.startswith("drift"):
        if column == "drift_cv" and record.rounds["participants"].max(initial=0) < 2:
            return {}  # drift has no dispersion over a single participant
        return record.around(column, view.setting.scale.at(200), REACH)
    return record.final(column)


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
    regimes = [column["name"] for column in entry["columns"]]
    for place, dataset in datasets_of(entry, view.setting):
        grid = grid_of(name, view.setting, dataset)
        records = {method: [view.get(cell) for cell in cells] for method, cells in grid.items()}
        facts = facts_line([record for row in records.values() for record in row])
        note = entry.get("note") or entry["notes"].get(dataset, "")
        for position, table in enumerate(entry["tables"]):
            values: dict[str, Values] = {
                method: [measured(record, table["column"], view) for record in row]
                for method, row in records.items()
            }
            title = f"{entry['title']}, {dataset}: {table['title']}"
            label = f"{name}-{dataset}-{position}"
            unit = table.get("unit", "")
            digits = table.get("digits", 2)
            beside = [_printed(table, place, regime) for regime in regimes]
            blocks.append(
                matrix(
                    label, title, regimes, records, values, unit=unit, digits=digits,
                    beside=beside, note=note,
                )
            )  # fmt: skip
            regimes_run = sum(any(column) for column in zip(*values.values(), strict=True))
            if regimes_run > 1 and table["title"] not in entry.get("no_figure", ()):
                ticks = [regime.rpartition("= ")[2] for regime in regimes]
                figure = sweep(ticks, values, _axis(table), entry["label"])
                pictures.append(Picture(label, title, figure, CAPTION, facts))
            if table["column"] == "test_rmse":
                versus = f"{entry['title']}, {dataset}: FO-RI-FedAvg against each method"
                blocks.append(against(f"{label}-against", versus, regimes, values, records))
    return Findings(tuple(blocks), tuple(pictures))


def show_ablation(name: str, view: View) -> Findings:
    """Show every table of an ablation on all datasets."""
    entry = ABLATIONS[name]
    blocks = []
    pictures = []
    variants = entry["variants"]
    for place, dataset in datasets_of(entry, view.setting):
        records = [view.get(variant(dataset, _settings(changes))) for changes in variants]
        lines = [
            Line(changes["name"], changes.get("row", changes["name"]), record)
            for changes, record in zip(variants, records, strict=True)
        ]
        for position, table in enumerate(entry["tables"]):
            values = [measured(record, table["column"], view) for record in records]
            title = f"{entry['title']}, {dataset}: {table['title']}"
            label = f"{name}-{dataset}-{position}"
            blocks.append(
                comparison(
                    label, title, lines, table["column"], heading=table["title"],
                    unit=table.get("unit", ""), digits=table.get("digits", 2),
                    beside=_printed(table, place), reference=entry.get("reference", 0),
                    first=entry["label"], note=entry.get("note", ""), values=values,
                )
            )  # fmt: skip
            if entry.get("figure") and sum(map(bool, values)) > 1:
                ticks = [changes["name"] for changes in variants]
                figure = sweep(ticks, {OURS: values}, _axis(table), entry["label"])
                pictures.append(Picture(label, title, figure, CAPTION, facts_line(records)))
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
