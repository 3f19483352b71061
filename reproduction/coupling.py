"""Coupling of roughness and drift: the paper's mechanistic evidence, with enough vehicles to tell.

A round of the main setting has three participants, over which a correlation is meaningless. Here
all vehicles of the dataset take part in every round. FedAvg and FO-FedAvg carry the probe along
with λ = 0: it measures and changes nothing, bit for bit.
"""

from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fedwatt.metrics import pearson, spearman
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import TableColumn
from reproduction.cell import OURS, Cell
from reproduction.figures import cloud
from reproduction.paper import printed
from reproduction.record import FLAT, Record
from reproduction.study import Findings, Picture, Setting, Study, View
from reproduction.tables import beside, beside_columns, table_block, theirs, value

CARRIERS = {
    "fedavg": ("fedavg+roughness", {"lam": 0.0}),
    "ri-fedavg": ("ri-fedavg", {}),
    "fo-fedavg": ("fo-fedavg+roughness", {"lam": 0.0}),
    "fo-ri-fedavg": ("fo-ri-fedavg", {}),
}
WIDE = 1.0
"""A probe radius at which slices are no longer monotone: a hundred times the paper's."""
PROBE_NOTE = (
    "At the paper's radius nearly all slices are monotone, so that I_k is next to 0 or the "
    "accident of one direction; at radius 1 it is not."
)


def carrier(dataset: str, method: str, radius: float = 0.01) -> Cell:
    """Return a method with its roughness measured, on all vehicles in every round."""
    name, settings = CARRIERS[method]
    cell = Cell(dataset=dataset, method=name, vehicles=0, participation=1.0)
    return cell.with_settings(settings | ({"radius": radius} if radius != 0.01 else {}))


def coupling_cells(setting: Setting) -> list[Cell]:
    """Return FedAvg, RI, FO and FO-RI with their roughness; FedAvg at the wide radius, too."""
    made = []
    for _, dataset in setting.few_places:
        made += [carrier(dataset, method) for method in OURS]
        made += [carrier(dataset, m, WIDE) for m in ("fedavg", "fo-ri-fedavg")]
    return made


Cloud = tuple[NDArray[np.float64], NDArray[np.float64]]


def by_vehicle(
    record: Record, seed: int, rounds: tuple[int, int]
) -> dict[str, tuple[float, float]]:
    """Return vehicle → (roughness, drift) in a seed, means over its replies in `rounds`."""
    replies = record.vehicles
    chosen = (
        (replies["seed"] == seed)
        & (replies["round"] >= rounds[0])
        & (replies["round"] <= rounds[1])
    )
    means = {}
    for vehicle in sorted(set(replies["vehicle"][chosen].tolist())):
        rows = chosen & (replies["vehicle"] == vehicle)
        means[vehicle] = (
            float(replies["roughness"][rows].mean()),
            float(replies["drift"][rows].mean()),
        )
    return means


def points(record: Record, seed: int, rounds: tuple[int, int]) -> Cloud:
    """Return (roughness, drift) of each vehicle of a seed, as two columns."""
    pairs = list(by_vehicle(record, seed, rounds).values())
    return np.array([rough for rough, _ in pairs]), np.array([drift for _, drift in pairs])


def coupling_values(record: Record, rounds: tuple[int, int]) -> dict[str, dict[int, float]]:
    """Return per seed the correlations and the share of vehicles without roughness."""
    correlations: dict[str, dict[int, float]] = {"pearson": {}, "spearman": {}, "flat": {}}
    for seed in record.seeds:
        x, y = points(record, seed, rounds)
        for name, correlate in (("pearson", pearson), ("spearman", spearman)):
            correlation = correlate(x, y)
            if np.isfinite(correlation):
                correlations[name][seed] = correlation
        if x.size:
            correlations["flat"][seed] = float((x < FLAT).mean())
    return correlations


def show_coupling(view: View) -> Findings:
    """Return correlation of roughness and drift at t = 100, and the scatter."""
    at = min(view.setting.scale.at(100) + 1, view.setting.scale.rounds)
    columns = [
        TableColumn("Method and radius"),
        *beside_columns("Pearson r"),
        *beside_columns("Spearman ρ"),
        TableColumn("Share with I ≈ 0", "", 2),
    ]
    note = (
        "Within each seed over all vehicles, then mean ± standard deviation over the seeds in "
        "which it exists; a dash where roughness is constant. " + PROBE_NOTE
    )
    blocks = []
    pictures = []
    for place, dataset in view.setting.few_places:
        rows: list[tuple[Entry, ...]] = []
        records = _carried(view, dataset)
        for name, record in records.items():
            correlations = coupling_values(record, (at, at)) if record else {}
            row: list[Entry] = [name]
            for column in ("Pearson", "Spearman"):
                ours = value(record, correlations.get(column.lower(), {}))
                row += beside(ours, theirs("coupling", place, column))
            rows.append((*row, value(record, correlations.get("flat", {}))))
        title = f"Roughness–drift coupling at t = 100 on {dataset}"
        name = f"coupling-{dataset}"
        block = table_block(name, title, columns, rows, note, list(records.values()))
        blocks.append(block)
        pictures.append(_scatter(view, place, dataset, at, block.facts))
    return Findings(tuple(blocks), tuple(pictures))


def _carried(view: View, dataset: str) -> dict[str, Record | None]:
    """Return method and radius → record: all four at the paper's radius, two at the wide one."""
    pairs = [(m, 0.01) for m in OURS] + [(m, WIDE) for m in ("fedavg", "fo-ri-fedavg")]
    return {
        f"{name_of(method)}, ℓ = {radius:g}": view.get(carrier(dataset, method, radius))
        for method, radius in pairs
    }


def _scatter(view: View, place: str, dataset: str, at: int, facts: str) -> Picture:
    drawn: dict[str, Cloud] = {}
    for radius, method in product((0.01, WIDE), ("fedavg", "fo-ri-fedavg")):
        record = view.get(carrier(dataset, method, radius))
        if record is None:
            continue
        pairs = [points(record, seed, (at, at)) for seed in record.seeds]
        standard = [(_standard(x), _standard(y)) for x, y in pairs if x.size]
        label = method if radius == 0.01 else f"{method} (ℓ = {radius:g})"
        drawn[label] = (
            np.concatenate([x for x, _ in standard]) if standard else np.array([]),
            np.concatenate([y for _, y in standard]) if standard else np.array([]),
        )
    if place:
        table = printed(f"scatter-{place.lower()}")
        pairs_printed = np.array([[e.mean for e in row] for row in table.rows.values()])
        drawn["printed"] = (_standard(pairs_printed[:, 0]), _standard(pairs_printed[:, 1]))
    return Picture(
        f"coupling-{dataset}",
        f"Roughness against drift at t = 100, {dataset}",
        cloud(drawn, "Standardised within each seed", ("roughness I_k", "drift ‖Δ‖₂")),
        "Each point is one vehicle of one seed, with the least-squares line; the paper's twelve "
        "printed pairs stand beside them.",
        facts,
    )


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def tertile_drift(record: Record, rounds: tuple[int, int]) -> Mapping[str, dict[int, float]]:
    """Return mean drift of the vehicles with low, middle and high roughness, for each seed."""
    drifts: dict[str, dict[int, float]] = {"Low": {}, "Med": {}, "High": {}}
    for seed in record.seeds:
        x, y = points(record, seed, rounds)
        if x.size < 3:
            continue
        for name, part in zip(drifts, np.array_split(np.argsort(x, kind="stable"), 3), strict=True):
            drifts[name][seed] = float(y[part].mean())
    return drifts


def show_tertiles(view: View) -> Findings:
    """Return mean drift by roughness tertile around t = 200."""
    scale = view.setting.scale
    rounds = (max(1, scale.at(200) - 10), scale.at(200) + 10)
    tertiles = ("Low", "Med", "High")
    columns = [TableColumn("Method")]
    for name in tertiles:
        columns += beside_columns(name, digits=3)
    note = (
        "Roughness and drift of each vehicle are means over the rounds around t = 200. Where many "
        "vehicles have next to none, who is low and who is middle is arbitrary. " + PROBE_NOTE
    )
    blocks = []
    for place, dataset in view.setting.few_places:
        rows: list[tuple[Entry, ...]] = []
        records = {method: view.get(carrier(dataset, method)) for method in OURS}
        for method, record in records.items():
            drifts = tertile_drift(record, rounds) if record else {}
            row: list[Entry] = [name_of(method)]
            for name in tertiles:
                entry = theirs(f"tertiles-{place.lower()}", method, name)
                row += beside(value(record, drifts.get(name, {})), entry)
            rows.append(tuple(row))
        title = f"Mean drift by roughness tertile at t = 200 on {dataset}"
        name = f"tertiles-{dataset}"
        blocks.append(table_block(name, title, columns, rows, note, list(records.values())))
    return Findings(tuple(blocks))


def early_values(record: Record, early: int, later: tuple[int, int]) -> dict[int, float]:
    """Return per seed the correlation of roughness at `early` with mean drift in `later`."""
    correlations = {}
    for seed in record.seeds:
        before = by_vehicle(record, seed, (early, early))
        after = by_vehicle(record, seed, later)
        both = sorted(before.keys() & after.keys())
        rough = np.array([before[name][0] for name in both])
        correlation = pearson(rough, np.array([after[name][1] for name in both]))
        if np.isfinite(correlation):
            correlations[seed] = float(correlation)
    return correlations


def show_early(view: View) -> Findings:
    """Return roughness at t = 20 against drift in rounds 50 to 100."""
    scale = view.setting.scale
    # Rows count rounds from 1: the model of round t is probed in the row of t + 1.
    early = scale.at(20) + 1
    later = (scale.at(50) + 1, min(scale.at(100) + 1, scale.rounds))
    columns = [TableColumn("Method and radius"), *beside_columns("Pearson r")]
    note = "Over all vehicles, within each seed. A dash where roughness is constant."
    blocks = []
    for place, dataset in view.setting.few_places:
        records = _carried(view, dataset)
        entry = theirs("early-roughness", place, "Pearson")
        rows: list[tuple[Entry, ...]] = []
        for label, record in records.items():
            correlations = early_values(record, early, later) if record else {}
            rows.append((label, *beside(value(record, correlations), entry)))
        title = f"Roughness at t = 20 against drift in rounds 50 to 100 on {dataset}"
        name = f"early-roughness-{dataset}"
        blocks.append(table_block(name, title, columns, rows, note, list(records.values())))
    return Findings(tuple(blocks))


COUPLING = Study(
    "coupling",
    "Roughness–drift coupling: correlations and scatter",
    coupling_cells,
    show_coupling,
    printed=("coupling", "scatter-ved", "scatter-eved"),
    claims=("C1",),
)
TERTILES = Study(
    "tertiles",
    "Stratified drift by roughness tertile",
    coupling_cells,
    show_tertiles,
    printed=("tertiles-ved", "tertiles-eved"),
    claims=("C1",),
)
EARLY = Study(
    "early-roughness",
    "Early roughness against later drift",
    coupling_cells,
    show_early,
    printed=("early-roughness",),
    claims=("C1",),
)
