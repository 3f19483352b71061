"""Run folders read back: their tables as columns, and facts about fleet, run and machine."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import RunError
from fedwatt.files import parse_json, parse_toml
from fedwatt.runs.tables import read_table
from fedwatt.windows.targets import ENERGY

TABLES = ("rounds", "vehicles", "timing")  # of a run, those that a report reads
BASELINES = "baselines"  # a further one, which not every run has
Columns = Mapping[str, NDArray[Any]]  # column name → values, [rows]; missing numbers are NaN


@dataclass(frozen=True)
class Predicted:
    """The target of the windows, as environment.json describes it (`fedwatt.windows.targets`)."""

    name: str = ENERGY.name
    unit: str = ENERGY.unit
    meaning: str = ENERGY.meaning
    adds: str = ENERGY.adds
    typical: float = ENERGY.typical
    grain: float = 0.0
    """Size of the steps in which labels move; 0: they are not coarse."""

    def digits(self, for_wh: int = 1) -> int:
        """Return the decimals of an error in this unit that correspond to `for_wh` decimals in Wh.

        >>> Predicted(typical=1.0, unit="points").digits(1)
        3
        """
        return for_wh + max(0, round(log10(ENERGY.typical / self.typical)))


@dataclass(frozen=True)
class RunOrigin:
    """A run folder: its configuration and what it ran on."""

    name: str
    config: str
    """The text of config.toml."""
    environment: Mapping[str, Any]
    methods: frozenset[str]
    """Labels of its methods."""
    baselines: Columns | None = None
    """The table of baselines; None where the run has none."""

    @property
    def target(self) -> Predicted:
        """Target of the windows; energy where a run does not name one."""
        return Predicted(**self.environment.get("fleet", {}).get("target", {}))


@dataclass(frozen=True)
class RunTables:
    """The results of one run folder, or of several put together."""

    origins: tuple[RunOrigin, ...]
    rounds: Columns
    vehicles: Columns
    timing: Columns

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the methods in the order in which they ran."""
        return tuple(dict.fromkeys(self.rounds["method"]))

    @property
    def reference(self) -> str:
        """The method that others are compared with: FedAvg, or else the first."""
        return "fedavg" if "fedavg" in self.methods else self.methods[0]

    @property
    def target(self) -> Predicted:
        """Target of the windows, the same in all origins (`load_runs`)."""
        return self.origins[0].target

    @property
    def rates(self) -> dict[str, float]:
        """η₀ of the methods whose configuration is at hand, by label."""
        rates: dict[str, float] = {}
        for origin in self.origins:
            table = parse_toml(origin.config)
            common = table.get("training", {}).get("learning_rate")
            for method in table.get("method", []):
                label = str(method.get("label", method.get("name")))
                learning_rate = method.get("learning_rate", common)
                names = {label, f"{label} ({origin.name})"} & origin.methods
                rates |= {name: learning_rate for name in names if learning_rate is not None}
        return rates

    @property
    def unit(self) -> str:
        """Unit of the errors of a window."""
        return self.target.unit

    @property
    def same_data(self) -> bool:
        """Did all origins train and test on the same windows of the same fleet?"""
        hashes = [origin.environment.get("hashes", {}) for origin in self.origins]
        return len({(each.get("splits"), each.get("data")) for each in hashes}) == 1


def load_run(folder: str | Path) -> RunTables:
    """Return the run in `folder`; one clear sentence if something in it is missing or broken."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RunError(f"There is no run folder {folder}. 'fedwatt run --out {folder}' makes one.")
    config = _read_text(folder / "config.toml")
    try:
        parse_toml(config)
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"{folder / 'config.toml'} is not valid TOML: {error}.") from error
    try:
        environment = parse_json(_read_text(folder / "environment.json"))
    except json.JSONDecodeError as error:
        raise RunError(f"{folder / 'environment.json'} is not valid JSON: {error}.") from error
    if not isinstance(environment, dict):
        raise RunError(f"{folder / 'environment.json'} must hold a JSON object. Repeat the run.")
    tables = {name: _columns(folder, name) for name in TABLES}
    if not len(tables["rounds"]["round"]):
        raise RunError(f"{folder / 'rounds.parquet'} has no rows: the run has not begun.")
    methods = frozenset(tables["rounds"]["method"])
    beside = (folder / f"{BASELINES}.parquet").exists()
    baselines = _columns(folder, BASELINES) if beside else None
    origin = RunOrigin(folder.name, config, environment, methods, baselines)
    return RunTables((origin,), **tables)


def load_runs(folders: Sequence[Path]) -> RunTables:
    """Load several run folders as one; a method in more than one of them is named after its run."""
    runs = [load_run(folder) for folder in folders]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise RunError(
            f"The run folder {min(_repeated(names))} was given twice. Name each one once."
        )
    ambiguous = _repeated([method for run in runs for method in run.methods])
    origins = []
    parts: dict[str, list[Columns]] = {table: [] for table in TABLES}
    for name, run in zip(names, runs, strict=True):
        for table, columns in parts.items():
            columns.append(_relabel(getattr(run, table), name, ambiguous))
        methods = frozenset(parts["rounds"][-1]["method"])
        (origin,) = run.origins
        origins.append(replace(origin, name=name, methods=methods))
    _refuse_other_targets(origins)
    return RunTables(
        tuple(origins), **{table: _stacked(columns) for table, columns in parts.items()}
    )


def where(columns: Columns, **values: object) -> Columns:
    """Return the rows in which every named column has the given value.

    >>> table = {"seed": np.array([1, 2, 1]), "rmse": np.array([5.0, 6.0, 7.0])}
    >>> where(table, seed=1)["rmse"].tolist()
    [5.0, 7.0]
    """
    keep = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for name, value in values.items():
        keep &= columns[name] == value
    return {name: column[keep] for name, column in columns.items()}


def _columns(folder: Path, name: str) -> Columns:
    table = read_table(folder, name)
    return {field.name: table[field.name].to_numpy(zero_copy_only=False) for field in table.schema}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RunError(f"{path.parent} has no {path.name}. Is it a finished run?") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error


def _refuse_other_targets(origins: Sequence[RunOrigin]) -> None:
    """Raise unless all errors are of one target, in one unit."""
    first = origins[0]
    expected = first.target
    for origin in origins[1:]:
        target = origin.target
        if (target.name, target.unit) != (expected.name, expected.unit):
            raise RunError(
                f"Run {first.name} predicts {expected.name} in {expected.unit}, run {origin.name} "
                f"{target.name} in {target.unit}: their errors do not belong on one page. Report "
                "them separately."
            )


def _repeated(items: Sequence[str]) -> set[str]:
    return {item for item in items if items.count(item) > 1}


def _relabel(columns: Columns, run: str, ambiguous: set[str]) -> Columns:
    labels = [f"{m} ({run})" if m in ambiguous else m for m in columns["method"]]
    return {**columns, "method": np.array(labels, dtype=object)}


def _stacked(parts: Sequence[Columns]) -> Columns:
    """Stack the rows of several tables; missing columns become NaN."""
    unknown = [np.full(len(part["method"]), np.nan) for part in parts]
    padded = list(zip(parts, unknown, strict=True))
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: np.concatenate([part.get(name, nan) for part, nan in padded]) for name in names}


Facts = list[tuple[str, str]]


def fleet_facts(origin: RunOrigin) -> Facts:
    """Return the fleet in figures, as environment.json describes it."""
    fleet = origin.environment.get("fleet", {})
    windows = fleet.get("windows", {})
    facts = [("Source", str(fleet.get("source", "not recorded")))]
    if "vehicles" in fleet:
        held_out = fleet.get("held_out") or []
        without = f", {len(held_out)} of them held out of training" if held_out else ""
        facts.append(("Vehicles", f"{fleet['vehicles']:,}{without}"))
    sample = fleet.get("reckoned_from")
    form = "about {:,}, estimated from " + f"{sample} vehicles" if sample else "{:,}"
    facts += [(f"Windows, {split}", form.format(count)) for split, count in windows.items()]
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
    first, *following = (f"{name} in {count}" for name, count in present.items())
    return ", ".join([f"{first} vehicles", *following])


def run_facts(run: RunTables) -> Facts:
    """Return rounds, participation and losses over all methods and seeds."""
    rounds = sorted({int(where(run.rounds, method=m)["round"].max()) for m in run.methods})
    called = int(np.nansum(run.rounds["participants"]))
    lost, rejected = (int(np.nansum(run.rounds[name])) for name in ("lost", "rejected"))
    trained = run.rounds["participants"][run.rounds["round"] > 0]
    median = f"{np.nanmedian(trained):g} (median)" if trained.size else "none"
    return [
        ("Rounds", " to ".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))),
        ("Vehicles called per round", median),
        ("Replies lost", f"{lost:,} of {called:,}"),
        ("Replies rejected", f"{rejected:,} of {called:,}"),
        ("Seeds", ", ".join(map(str, np.unique(run.rounds["seed"]).tolist()))),
    ]
