"""Tables of methods that record more: privacy budgets, and signals to vehicles."""

from math import isfinite, isnan, nan
from typing import Any

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
            turns_of = where(replied, vehicle=vehicle)
            turns = {name: _values(turns_of, name) for name in SIGNALS}
            if not any(np.isfinite(values).any() for values in turns.values()):
                continue
            flagged = _values(turns_of, "flagged")
            rows.append(
                (
                    name_of(method),
                    str(vehicle),
                    *(_middle(values, name) for name, values in turns.items()),
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
            TableColumn("Turns flagged"),
        ),
        tuple(rows),
        "Mean over turns and seeds of the share of its last gain that a vehicle got back (1 all, "
        "below 0 harm), of the cosine between its last displacement and the fleet's way since, and "
        "of its displacement over the length of its path (1 straight ahead); "
        "median batch at which a gradient is as much noise as signal. A turn is flagged if the "
        f"alignment is below {AGAINST:g} in {TURNS} turns running, or for a displacement much "
        f"longer than the others'.{_agreement(run)}",
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
    text = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    return f" Agreement of directions (1 alike, 0 orthogonal), mean over rounds: {text}."


def _values(rows: Columns, name: str) -> NDArray[np.float64]:
    return np.asarray(rows.get(name, []), dtype=np.float64)


def _middle(values: NDArray[np.float64], name: str) -> Cell:
    recorded = values[~np.isnan(values)]
    if not recorded.size:
        return LEFT_OUT
    middle = float(np.median(recorded) if name == "noise_scale" else np.mean(recorded))
    return middle if np.isfinite(middle) else "all noise"


HEADER = ("Method", "ε", "ε against the server", "δ", "Noise, z", "Sampling, q", "Repeated rounds")


def private_methods(run: RunTables) -> list[str]:
    """Return the methods that have an ε."""
    return [method for method in run.methods if not isnan(_epsilon(run, method))]


def _epsilon(run: RunTables, method: str) -> float:
    """ε after a method's last round; NaN if it is not private."""
    values = where(run.rounds, method=method)["epsilon"]
    return float(values.max()) if values.size and not np.isnan(values).all() else nan


def spent(run: RunTables, method: str) -> str:
    """ε after a method's last round, for people."""
    value = _epsilon(run, method)
    if isnan(value):
        return "–"
    return f"{value:.3g}" if isfinite(value) else "∞"


def privacy_table(run: RunTables) -> ReportTable:
    """ε of every private method, and what it rests on."""
    rows = []
    for method in private_methods(run):
        terms = _terms(run, method)
        values = [terms.get(name) for name in ("delta", "noise_multiplier", "probability")]
        texts = ["–" if value is None else f"{value:.3g}" for value in values]
        server = terms.get("epsilon_server")
        repeated = str(terms.get("repeated", 0))
        seen = "∞" if server is None else f"{server:.3g}"
        rows.append((name_of(method), spent(run, method), seen, *texts, repeated))
    return ReportTable(
        "privacy",
        "Privacy spent on each vehicle by the whole training",
        tuple(map(TableColumn, HEADER)),
        tuple(rows),
        "(ε, δ) differential privacy for a vehicle with all its trips, from the Rényi accountant. "
        "It covers the models that leave the server; against the server itself it holds only with "
        "noise under secure aggregation. Rounds that a killed server repeated are counted. A "
        "simulation draws its noise from its seed: its ε is that of a deployed fleet. Errors, "
        "drift and roughness in this report come from a simulation and are not covered.",
    )


def _terms(run: RunTables, method: str) -> dict[str, Any]:
    """Return the method's entry in environment.json, by its label or with its run's name."""
    for origin in run.origins:
        by_label: dict[str, dict[str, Any]] = origin.environment.get("privacy", {})
        for label, terms in by_label.items():
            if method in (label, f"{label} ({origin.name})"):
                return terms
    return {}
