"""Signals of the fleet to its vehicles, for methods that record them."""

import numpy as np
from numpy.typing import NDArray

from fedwatt.metrics.rounds import AGAINST, TURNS
from fedwatt.report.load import Columns, RunTables, where
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell, ReportTable, TableColumn

SIGNALS = ("transfer", "alignment", "efficiency", "noise_scale")
LEFT_OUT = "–"


def signals_table(run: RunTables) -> ReportTable:
    """Means over a vehicle's turns; no rows where nothing was recorded."""
    rows: list[tuple[Cell, ...]] = []
    for method in run.methods if any(name in run.clients for name in SIGNALS) else ():
        replied = where(run.clients, method=method, replied=True)
        for vehicle in dict.fromkeys(replied["vehicle"].tolist()):
            own = where(replied, vehicle=vehicle)
            turns = {name: _values(own, name) for name in SIGNALS}
            if not any(np.isfinite(values).any() for values in turns.values()):
                continue
            running = _most_running(own)
            flagged = _values(own, "flagged")
            rows.append(
                (
                    name_of(method),
                    str(vehicle),
                    *(_middle(values, name) for name, values in turns.items()),
                    f"yes, {running} turns running" if running >= TURNS else "no",
                    f"{np.sum(flagged):.0f} of {flagged.size}" if flagged.size else LEFT_OUT,
                )
            )
    return ReportTable(
        "signals",
        "What vehicles get back from the fleet",
        (
            TableColumn("Method"),
            TableColumn("Vehicle"),
            TableColumn("Transfer ratio", digits=2),
            TableColumn("Alignment", digits=2),
            TableColumn("Path efficiency", digits=2),
            TableColumn("Noise scale", "windows", digits=0),
            TableColumn("Works against the fleet"),
            TableColumn("Turns flagged"),
        ),
        tuple(rows),
        "Mean over turns and seeds of the share of its last gain that a vehicle got back (1 all, "
        "below 0 harm), of the cosine between its last displacement and the fleet's way since, and "
        "of its displacement over the length of its path (1 straight ahead); "
        "median batch at which a gradient is as much noise as signal. A vehicle works against the "
        f"fleet if its alignment is below {AGAINST:g} in {TURNS} turns running. A turn is flagged "
        f"for that, or for a displacement much longer than the others'.{_agreement(run)}",
    )


def _agreement(run: RunTables) -> str:
    """Return a sentence on how far the vehicles' directions agree, by method."""
    if "agreement" not in run.rounds:
        return ""
    means = {
        name_of(method): np.nanmean(values)
        for method in run.methods
        if np.isfinite(values := where(run.rounds, method=method)["agreement"]).any()
    }
    if not means:
        return ""
    said = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    return f" Agreement of directions (1 alike, 0 orthogonal), mean over rounds: {said}."


def _values(rows: Columns, name: str) -> NDArray[np.float64]:
    return np.asarray(rows.get(name, []), dtype=np.float64)


def _middle(values: NDArray[np.float64], name: str) -> Cell:
    known = values[~np.isnan(values)]
    if not known.size:
        return LEFT_OUT
    middle = float(np.median(known) if name == "noise_scale" else np.mean(known))
    return middle if np.isfinite(middle) else "all noise"


def _most_running(rows: Columns) -> int:
    """Return the longest run of turns, in any seed, in which a vehicle worked against the fleet."""
    most = 0
    for seed in set(rows["seed"].tolist()):
        running = 0
        for low in _values(where(rows, seed=seed), "alignment") < AGAINST:
            running = running + 1 if low else 0
            most = max(most, running)
    return most
