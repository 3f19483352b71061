"""Every column of every table of a run, declared once.

Records, Parquet files, messages, report and documentation take names, types, units and what stands
for an unknown value from here. Error columns follow `metrics.METRICS`, so a further metric is one
entry there. What a local rule records of a vehicle's round is a `Column` in its `records`: the
columns of fedwatt's own rules are below, a rule of your own declares its column in its own file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, Final

from fedwatt.errors import check
from fedwatt.metrics import METRICS, PARTS

UNKNOWN: Final[dict[type, Any]] = {str: "", int: 0, float: nan, bool: False}
"""What stands in a column of each type where there is no value."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: type
    """`str`, `int`, `float` or `bool`."""
    meaning: str
    unit: str = ""
    filled_by: str = "rules"
    """A function, or the part of a run; "rules" are those with the column in their `records`."""
    title: str = ""
    """Its label in tables and figures of a report."""
    digits: int = 1
    """Decimals that a report shows."""

    def __post_init__(self) -> None:
        check(self, "kind", self.kind in UNKNOWN, "str, int, float or bool")

    @property
    def unknown(self) -> Any:
        """What stands here where there is no value."""
        return UNKNOWN[self.kind]

    def value(self, number: float) -> Any:
        """A recorded number as this column holds it; NaN is no value.

        >>> Column("probed", bool, "whether it was probed").value(1.0)
        True
        """
        return self.unknown if isnan(number) else self.kind(number)


@dataclass(frozen=True)
class Table:
    """A table of a run folder; columns in the order of its file."""

    about: str
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        return {column.name: column for column in self.columns}[name]

    def filled_by(self, function: str) -> tuple[Column, ...]:
        """The columns that one function fills."""
        return tuple(column for column in self.columns if column.filled_by == function)


def blank(columns: Iterable[Column]) -> dict[str, Any]:
    """A row of which nothing is known.

    >>> blank([DRIFT, PROBED])
    {'drift': nan, 'probed': False}
    """
    return {column.name: column.unknown for column in columns}


TRAINING: Final = "training_columns"
EVALUATION: Final = "Evaluation.columns"
BEST: Final = "judged"
OUTCOME: Final = "outcome_columns"
ERRORS: Final = "error_columns"
LOOP: Final = "the loop over rounds"
BUFFERED: Final = "buffered rounds"
ACCOUNTANT: Final = "the account of privacy"
RUN_FOLDER: Final = "the run folder"
STOPWATCH: Final = "the stopwatch"
"""Who fills a column: a function's name, or the part of a run that does."""

METHOD: Final = Column("method", str, "label of the method", filled_by=LOOP)

DRIFT: Final = Column(
    "drift", float, "‖Δ_k‖₂, how far the vehicle moved", "", LOOP, "drift in the round, ‖Δ‖₂"
)
ROUGHNESS: Final = Column(
    "roughness",
    float,
    "I_k, roughness index of the vehicle's loss",
    title="roughness index of the vehicle",
)
PULL: Final = Column("pull", float, "μ_k, how hard the vehicle was pulled to the broadcast model")
KAPPA: Final = Column("kappa", float, "κ, spectral ratio of the broadcast model")
RUNTIME: Final = Column("runtime", float, "time of a local step over the budget for it (FedEL)")
STALENESS: Final = Column(
    "staleness",
    float,
    "models made between the one the vehicle trained and the one its reply entered",
    filled_by=BUFFERED,
)
PROBED: Final = Column("probed", bool, "whether the vehicle probed its roughness in this round")
RECORDED: Final = (DRIFT, ROUGHNESS, PULL, KAPPA, RUNTIME, STALENESS, PROBED)
"""What every run's table of clients has of a vehicle's local work."""


def recorded(own: Iterable[Column]) -> tuple[Column, ...]:
    """All columns about a vehicle's local work: `RECORDED`, then those of rules beyond them."""
    return tuple(dict.fromkeys((*RECORDED, *own)))


def _about(name: str, kind: type, meaning: str, filled_by: str = LOOP) -> Column:
    return Column(name, kind, meaning, filled_by=filled_by)


def _training(name: str, kind: type, meaning: str, title: str = "") -> Column:
    return Column(name, kind, meaning, filled_by=TRAINING, title=title)


def _rmse(name: str, meaning: str, title: str, filled_by: str = EVALUATION) -> Column:
    return Column(name, float, meaning, "Wh", filled_by, title)


def _errors(prefix: str, filled_by: str) -> tuple[Column, ...]:
    """A column for every metric."""
    return tuple(
        Column(prefix + name, float, one.meaning, one.unit, filled_by, one.title, one.digits)
        for name, one in METRICS.items()
    )


PARTICIPATION: Final = (
    METHOD,
    _about("seed", int, "seed of the run", BEST),
    _about("round", int, "completed rounds; 0 is the initial model", BEST),
    _training("available", int, "vehicles that could be asked"),
    _training("participants", int, "vehicles that were asked"),
    _training("replies", int, "replies that the server took in"),
    _training("lost", int, "replies that never came"),
    _training("rejected", int, "replies not finite, or too few of them for the method's defence"),
    _training("steps", int, "local steps of all replies"),
    _about("best_round", int, "round of the best-validated model so far", BEST),
)
"""Of a round: which one it is, and who took part."""
LOCAL_WORK: Final = (
    _training("rate", float, "η_t, the local step size"),
    _training(
        "drift_mean", float, "mean of ‖Δ_k‖₂ over the replies", "Mean drift of a vehicle, ‖Δ‖₂"
    ),
    _training(
        "drift_cv",
        float,
        "standard deviation of ‖Δ_k‖₂ over its mean",
        "Dispersion: standard deviation over mean",
    ),
    _training("roughness_mean", float, "mean of I_k over the replies that have one"),
    _training(
        "pearson",
        float,
        "correlation of roughness and drift over the replies; unknown with fewer than 8 of them or "
        "where one side is constant",
    ),
    _training("spearman", float, "the same correlation of ranks"),
)
"""Of a round: what the vehicles did."""
SUMMARIES: Final = (
    _rmse("test_rmse_macro", "mean of the vehicles' RMSE", "RMSE, vehicle mean"),
    _rmse(
        "test_rmse_weighted",
        "mean of the vehicles' RMSE, weighted by training windows",
        "RMSE, weighted mean",
    ),
    _rmse("held_out_rmse", "RMSE of vehicles that never train", "RMSE, held-out vehicles"),
    _rmse(
        "best_validation_rmse",
        "`validation_rmse` of the best-validated model so far",
        "Validation RMSE, best validated",
        BEST,
    ),
    _rmse(
        "best_test_rmse",
        "`test_rmse` of the best-validated model so far",
        "RMSE, best validated",
        BEST,
    ),
)
"""Of a round: errors beside the metrics of all test windows."""


def rounds() -> Table:
    """The table of rounds."""
    columns = (
        *PARTICIPATION,
        *LOCAL_WORK,
        _rmse("validation_rmse", "RMSE of all validation windows", "Validation RMSE"),
        *_errors("test_", EVALUATION),
        *SUMMARIES,
        _about("epsilon", float, "ε that a private method has spent so far", ACCOUNTANT),
        _training("clock", float, "simulated time of buffered rounds, in steps at speed 1"),
        _training("staleness_mean", float, "mean staleness of the replies in buffered rounds"),
        _about("evaluated", bool, "whether the model was evaluated", EVALUATION),
        _about("diverged", bool, "whether the run has diverged", BEST),
    )
    return Table(
        "A row for each method, seed and round; round 0 is the initial model. Errors pool the test "
        "windows of all vehicles that train, unless their column says otherwise.",
        columns,
    )


def clients() -> Table:
    """The table of clients, without what rules record beyond `RECORDED`."""
    flags = tuple(column for column in RECORDED if column.kind is bool)
    numbers = tuple(column for column in RECORDED if column.kind is not bool)
    columns = (
        METHOD,
        _about("vehicle", str, "name of the vehicle"),
        _about("seed", int, "seed of the run"),
        _about("round", int, "the round, from 1"),
        _about("windows", int, "n_k, its training windows"),
        _about(
            "steps",
            int,
            "H_k, its local steps; 0 if it could not finish any or its reply was lost",
            OUTCOME,
        ),
        *numbers,
        _about("replied", bool, "whether the server took its reply in", OUTCOME),
        _about("rejected", bool, "whether its reply came and was not taken in", OUTCOME),
        *flags,
    )
    return Table("A row for each vehicle that was asked in a round.", columns)


def vehicles() -> Table:
    """The table of vehicles."""
    columns = (
        METHOD,
        _about("model", str, '"last", "best" or "personal"', RUN_FOLDER),
        _about("vehicle", str, "name of the vehicle"),
        _about("stratum", str, '"all", or windows such as "speed: under 20 km/h"'),
        _about("seed", int, "seed of the run"),
        _about("windows", int, "test windows", ERRORS),
        *_errors("", ERRORS),
        _about("held_out", bool, "whether the vehicle never trains"),
    )
    return Table(
        'Test errors of the final ("last") and the best-validated ("best") models, and of those '
        'that vehicles made of the best one for themselves ("personal"). In a run with a level '
        "model the latter two are what vehicles would use: the level model where climb is not "
        "known or not borne out.",
        columns,
    )


def timing() -> Table:
    """The table of times."""
    meanings = PARTS | {"evaluation": "errors on validation and test windows"}
    parts = tuple(
        Column(name, float, meaning, "s", STOPWATCH) for name, meaning in meanings.items()
    )
    columns = (
        METHOD,
        _about("round", int, "completed rounds"),
        _about("seeds", int, "seeds that share the stack"),
        *parts,
        Column("total", float, "sum of all parts", "s", STOPWATCH),
    )
    return Table(
        "Wall-clock time of each round of a whole stack; apart from the rest, because time does "
        "not reproduce.",
        columns,
    )


TABLES: Final[dict[str, Callable[[], Table]]] = {
    "rounds": rounds,
    "clients": clients,
    "vehicles": vehicles,
    "timing": timing,
}


def markdown() -> str:
    """All tables and their columns, as docs/configuration.md shows them."""
    types = {str: "text", int: "whole number", float: "number", bool: "flag"}
    parts = []
    for name, table in TABLES.items():
        lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for one in table().columns:
            meaning = one.meaning.replace("|", r"\|")
            lines.append(f"| `{one.name}` | {types[one.kind]} | {one.unit} | {meaning} |")
        parts.append("\n".join([f"#### {name}.parquet", "", table().about, "", *lines]))
    return "\n\n".join(parts)
