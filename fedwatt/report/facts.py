"""Facts about the fleet, the run and the privacy that its methods have spent."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from math import isfinite, isnan, nan, sqrt
from typing import Any

import numpy as np

from fedwatt.report.load import Columns, Predicted, RunOrigin, RunTables, where
from fedwatt.report.statistics import rounds_of
from fedwatt.report.style import name_of
from fedwatt.report.table import ReportTable, TableColumn

Facts = list[tuple[str, str]]


def fleet_facts(origin: RunOrigin) -> Facts:
    """Return the fleet in figures, as environment.json describes it."""
    fleet = origin.environment.get("fleet", {})
    windows = fleet.get("windows", {})
    facts = [("Source", str(fleet.get("source", "not recorded")))]
    if "vehicles" in fleet:
        held_out = fleet.get("held_out") or []
        rest = f", {len(held_out)} of them held out of training" if held_out else ""
        facts.append(("Vehicles", f"{fleet['vehicles']:,}{rest}"))
    some = fleet.get("reckoned_from")
    about = "about {:,}, reckoned from " + f"{some} vehicles" if some else "{:,}"
    facts += [(f"Windows, {split}", about.format(count)) for split, count in windows.items()]
    target = origin.target
    facts.append(("A window predicts", f"{target.meaning}, in {target.unit} ({target.name})"))
    if target.grain:
        facts.append(("Coarseness", coarseness(target)))
    facts.append(("Labels", labels(fleet.get("labels", "not recorded"))))
    if "features" in fleet:
        facts.append(("Features", ", ".join(fleet["features"])))
    return facts


def coarseness(target: Predicted) -> str:
    """Return a sentence on the resolution of labels from a channel that moves in steps.

    Two readings, each up to a step behind, differ by an error of step/√6 (uniform, independent).

    >>> coarseness(Predicted(unit="points", grain=0.02))
    'labels move in steps of 0.02 points: an RMSE below about 0.0082 points is beyond them'
    """
    floor = f"{target.grain / sqrt(6):.2g}"
    steps = f"labels move in steps of {target.grain:.3g} {target.unit}"
    return f"{steps}: an RMSE below about {floor} {target.unit} is beyond them"


def labels(kind: str | Mapping[str, int]) -> str:
    """Return whether labels were measured or simulated.

    >>> labels({"measured": 3, "simulated": 17})
    'measured in 3 vehicles, simulated in 17'
    >>> labels({"measured": 0, "simulated": 20})
    'simulated'
    """
    if isinstance(kind, str):
        return kind
    present = {name: count for name, count in kind.items() if count}
    if len(present) == 1:
        return next(iter(present))
    first, *others = (f"{name} in {count}" for name, count in present.items())
    return ", ".join([f"{first} vehicles", *others])


def run_facts(run: RunTables) -> Facts:
    """Return rounds, participation and losses over all methods and seeds."""
    trained = run.rounds["round"] > 0
    rows = {name: column[trained] for name, column in run.rounds.items()}
    facts = [("Rounds", _by_origin(run, lambda own: f"{int(own['round'].max())}"))]
    if trained.any():
        lost, rejected = (int(np.nansum(rows[name])) for name in ("lost", "rejected"))
        asked = int(np.nansum(rows["participants"]))
        facts += [
            ("Vehicles asked in a round", f"{np.nanmedian(rows['participants']):g} (median)"),
            ("Replies lost", f"{lost:,} of {asked:,}"),
            ("Replies rejected", f"{rejected:,} of {asked:,}"),
        ]
    seeds = _by_origin(run, lambda own: ", ".join(map(str, np.unique(own["seed"]).tolist())))
    return [*facts, ("Seeds", seeds)]


def unequal_rounds(run: RunTables) -> str:
    """Return that methods were not trained for as many rounds as others, or nothing."""
    rounds = rounds_of(run)
    if len(set(rounds.values())) < 2:
        return ""
    each = ", ".join(f"{name_of(method)} {last}" for method, last in rounds.items())
    return (
        f"The methods were trained for different numbers of rounds: {each}. A difference may come "
        "from that alone."
    )


def _by_origin(run: RunTables, fact: Callable[[Columns], str]) -> str:
    """Return a fact of the round records, once if it is the same in all run folders, or else for
    each.
    """
    found = {}
    for origin in run.origins:
        own = np.isin(run.rounds["method"], list(origin.methods))
        found[origin.name] = fact({name: column[own] for name, column in run.rounds.items()})
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name}: {value}" for name, value in found.items())


def machine_facts(origin: RunOrigin) -> Facts:
    """Versions, device, time and hashes: all scalars of environment.json that are left."""
    shown = {k: v for k, v in origin.environment.items() if k not in ("fleet", "seeds")}
    facts = list(_flat(shown))
    try:
        times = (origin.environment[name] for name in ("started", "finished"))
        started, finished = map(datetime.fromisoformat, times)
    except (KeyError, TypeError, ValueError):
        return facts
    return [("duration", f"{(finished - started).total_seconds():,.0f} s"), *facts]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} {key}".strip())
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)


HEADER = ("Method", "ε", "ε against the server", "δ", "Noise, z", "Sampling, q", "Repeated rounds")


def private_methods(run: RunTables) -> list[str]:
    """Return the methods that have an ε."""
    return [method for method in run.methods if not isnan(_epsilon(run, method))]


def _epsilon(run: RunTables, method: str) -> float:
    """ε after a method's last round; NaN if it is not private."""
    values = where(run.rounds, method=method)["epsilon"]
    return float(values.max()) if values.size and not np.isnan(values).all() else nan


def spent(run: RunTables, method: str) -> str:
    """ε after a method's last round, as it is shown to people."""
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
        shown = ["–" if value is None else f"{value:.3g}" for value in values]
        server = terms.get("epsilon_server")
        repeated = str(terms.get("repeated", 0))
        seen = "∞" if server is None else f"{server:.3g}"
        rows.append((name_of(method), spent(run, method), seen, *shown, repeated))
    return ReportTable(
        "privacy",
        "Privacy spent on each vehicle by the whole training",
        tuple(map(TableColumn, HEADER)),
        tuple(rows),
        "(ε, δ) differential privacy for a vehicle with all its trips, from the Rényi accountant. "
        "It covers the models that leave the server, and against the server itself holds only "
        "where vehicles add the noise under masks. Rounds that a killed server repeated are "
        "counted. A simulation's noise is from its seed: its ε is that of a real fleet's. Errors, "
        "drift and roughness in this report are observations of a simulation and are not covered.",
    )


def _terms(run: RunTables, method: str) -> dict[str, Any]:
    """Return the method's entry in environment.json; labels of several runs carry their run's
    name.
    """
    for origin in run.origins:
        own: dict[str, dict[str, Any]] = origin.environment.get("privacy", {})
        for label, terms in own.items():
            if method in (label, f"{label} ({origin.name})"):
                return terms
    return {}
