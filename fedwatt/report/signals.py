"""What vehicles get back from the fleet: the signals of methods that record them, by vehicle."""

import numpy as np
from numpy.typing import NDArray

from fedwatt.metrics.agreement import AGAINST, TURNS
from fedwatt.report.load import Run, where
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell, Column, Table

SIGNALS = ("transfer", "alignment", "efficiency", "noise_scale")
LEFT_OUT = "–"


def signals_table(run: Run) -> Table:
    """Means over a vehicle's turns; no rows where nothing was recorded."""
    rows: list[tuple[Cell, ...]] = []
    for method in run.methods if any(name in run.clients for name in SIGNALS) else ():
        own = where(run.clients, method=method, replied=True)
        for vehicle in dict.fromkeys(own["vehicle"].tolist()):
            turns = {name: _values(run, method, vehicle, name) for name in SIGNALS}
            if not any(np.isfinite(values).any() for values in turns.values()):
                continue
            running = _most_running(run, method, vehicle)
            flagged = _values(run, method, vehicle, "flagged")
            rows.append(
                (
                    name_of(method),
                    str(vehicle),
                    *(_middle(turns[name], name) for name in SIGNALS),
                    f"yes, {running} turns running" if running >= TURNS else "no",
                    f"{np.sum(flagged):.0f} of {flagged.size}" if flagged.size else LEFT_OUT,
                )
            )
    return Table(
        "signals",
        "What vehicles get back from the fleet",
        (
            Column("Method"),
            Column("Vehicle"),
            Column("Transfer ratio", digits=2),
            Column("Alignment", digits=2),
            Column("Path efficiency", digits=2),
            Column("Noise scale", "windows", digits=0),
            Column("Works against the fleet"),
            Column("Turns flagged"),
        ),
        tuple(rows),
        "Mean over turns and seeds of the share of its last gain that a vehicle got back (1 all, "
        "below 0 harm), of the cosine between its last displacement and the fleet's way since, and "
        "of its displacement over the length of its path (1 straight ahead); "
        "median batch at which a gradient is as much noise as signal. A vehicle works against the "
        f"fleet if its alignment is below {AGAINST:g} in {TURNS} turns running. A turn is flagged "
        f"for that, or for a displacement much longer than the others'.{_agreement(run)}",
    )


def _agreement(run: Run) -> str:
    """A sentence on how far the vehicles' directions agree, by method."""
    if "agreement" not in run.rounds:
        return ""
    means = {
        name_of(method): np.nanmean(values)
        for method in run.methods
        if np.isfinite(values := where(run.rounds, method=method)["agreement"]).any()
    }
    said = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    return (
        f" Agreement of directions (1 alike, 0 orthogonal), mean over rounds: {said}."
        if said
        else ""
    )


def _values(run: Run, method: str, vehicle: str, name: str) -> NDArray[np.float64]:
    if name not in run.clients:
        return np.array([])
    rows = where(run.clients, method=method, vehicle=vehicle, replied=True)
    return np.asarray(rows[name], dtype=np.float64)


def _middle(values: NDArray[np.float64], name: str) -> Cell:
    known = values[~np.isnan(values)]
    if not known.size:
        return LEFT_OUT
    middle = float(np.median(known) if name == "noise_scale" else np.mean(known))
    return middle if np.isfinite(middle) else "all noise"


def _most_running(run: Run, method: str, vehicle: str) -> int:
    """The longest run of turns, in any seed, in which a vehicle worked against the fleet."""
    if "alignment" not in run.clients:
        return 0
    most = 0
    for seed in dict.fromkeys(run.rounds["seed"].tolist()):
        rows = where(run.clients, method=method, vehicle=vehicle, replied=True, seed=seed)
        running = 0
        for low in np.asarray(rows["alignment"], dtype=np.float64) < AGAINST:
            running = running + 1 if low else 0
            most = max(most, running)
    return most
