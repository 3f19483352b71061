"""The privacy that the methods of a run have spent."""

from math import isfinite, isnan, nan
from typing import Any

import numpy as np

from fedwatt.report.load import Run, where
from fedwatt.report.style import name_of
from fedwatt.report.table import Column, Table

HEADER = ("Method", "ε", "ε against the server", "δ", "Noise, z", "Sampling, q", "Repeated rounds")


def private_methods(run: Run) -> list[str]:
    """Return the methods that have an ε."""
    return [method for method in run.methods if not isnan(_epsilon(run, method))]


def _epsilon(run: Run, method: str) -> float:
    """ε after a method's last round; NaN if it is not private."""
    values = where(run.rounds, method=method)["epsilon"]
    return float(values.max()) if values.size and not np.isnan(values).all() else nan


def spent(run: Run, method: str) -> str:
    """ε after a method's last round, as it is shown to people."""
    value = _epsilon(run, method)
    if isnan(value):
        return "–"
    return f"{value:.3g}" if isfinite(value) else "∞"


def privacy_table(run: Run) -> Table:
    """ε of every private method, and what it rests on."""
    rows = []
    for method in private_methods(run):
        terms = _terms(run, method)
        values = [terms.get(name) for name in ("delta", "noise_multiplier", "probability")]
        shown = ["–" if value is None else f"{value:.3g}" for value in values]
        server = terms.get("epsilon_server")
        repeated = str(terms.get("repeated", 0))
        seen = "∞" if server is None else f"{server:.3g}"
        rows.append((name_of(method), spent(run, method), seen, *shown, repeated))
    return Table(
        "privacy",
        "Privacy spent on each vehicle by the whole training",
        tuple(map(Column, HEADER)),
        tuple(rows),
        "(ε, δ) differential privacy for a vehicle with all its trips, from the Rényi accountant. "
        "It covers the models that leave the server, and against the server itself holds only "
        "where vehicles add the noise under masks. Rounds that a killed server repeated are "
        "counted. A simulation's noise is from its seed: its ε is that of a real fleet's. Errors, "
        "drift and roughness in this report are observations of a simulation and are not covered.",
    )


def _terms(run: Run, method: str) -> dict[str, Any]:
    """Return the method's entry in environment.json; labels of several runs carry their run's
    name.
    """
    for origin in run.origins:
        own: dict[str, dict[str, Any]] = origin.environment.get("privacy", {})
        for label, terms in own.items():
            if method in (label, f"{label} ({origin.name})"):
                return terms
    return {}
