"""What federating gains over each vehicle alone: methods beside the references of a run.

Vehicles are compared one by one, each by its RMSE (mean over seeds), and the interval is over
vehicles: it says whether vehicles such as these gain, not whether training repeats itself.
"""

from dataclasses import dataclass
from math import nan

import numpy as np

from fedwatt.evaluation import REFERENCES
from fedwatt.evaluation.rows import LOCAL_ONLY
from fedwatt.report.load import Predicted, Run, where
from fedwatt.report.statistics import Estimate, estimate, final, kept_model, vehicle_rmse
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell, Column, Table, amount, shown

NAMES = {
    "kept": ("{}, kept model", "the kept model of {}"),
    "on board": ("{}, as used on board", "the kept model of {} as used on board"),
    "personal": ("{}, personal models", "personal models of {}"),
}
"""How a method's models are called in tables and in sentences, by how vehicles use them."""


@dataclass(frozen=True)
class Gain:
    """A federated model beside the best that vehicles have alone."""

    method: str
    model: str
    """Which of the method's, as in the table of vehicles."""
    use: str
    """How vehicles use it: one of `NAMES`."""
    reference: str
    federated: float
    """Mean RMSE over vehicles."""
    alone: float
    """The same of the reference."""
    saved: Estimate
    """RMSE alone minus federated, over vehicles: above zero federating is better."""
    better: int
    """Vehicles on which the federated model has the lower error."""

    @property
    def name(self) -> str:
        """The federated model in a table."""
        return NAMES[self.use][0].format(name_of(self.method))

    @property
    def phrase(self) -> str:
        """The federated model in a sentence."""
        return NAMES[self.use][1].format(name_of(self.method))

    @property
    def percent(self) -> float:
        """What federating saves, as a percentage of the error alone."""
        return 100 * self.saved.mean / self.alone


def reference_rmse(run: Run) -> dict[str, dict[str, float]]:
    """Reference -> vehicle -> RMSE, mean over seeds; empty where a run has no references."""
    found: dict[str, dict[str, float]] = {}
    table = run.origins[0].references
    if table is None or not run.same_data:
        return {}
    rows = where(table, stratum="all", held_out=False)
    for name in dict.fromkeys(rows["reference"]):
        own = where(rows, reference=name)
        for vehicle in dict.fromkeys(own["vehicle"]):
            rmse = where(own, vehicle=vehicle)["rmse"].astype(np.float64)
            found.setdefault(name, {})[vehicle] = float(rmse.mean())
    return found


def best_alone(references: dict[str, dict[str, float]]) -> str:
    """Return the local-only baseline: the one chosen on validation, else the lowest test error."""
    if LOCAL_ONLY in references:
        return LOCAL_ONLY
    own = {name: rmse for name, rmse in references.items() if REFERENCES[name].alone}
    return min(own, key=lambda name: float(np.mean(list(own[name].values()))))


def gains(run: Run) -> list[Gain]:
    """The models of every method against the best that vehicles have alone.

    Of a method they are the one that it keeps, as vehicles use it where that is with a level model
    or in a mixture, and its vehicles' own. Vehicles use the last of those that there are.
    """
    references = reference_rmse(run)
    if not references:
        return []
    reference = best_alone(references)
    alone, found = references[reference], []
    for method in run.methods:
        origins = [origin for origin in run.origins if method in origin.methods]
        on_board = any(origin.level is not None or origin.mixes for origin in origins)
        models = {kept_model(run, method): "on board" if on_board else "kept"}
        for model, use in (models | {"personal": "personal"}).items():
            own = vehicle_rmse(run, method, model=model)
            shared = [vehicle for vehicle in own if vehicle in alone]
            saved = [alone[vehicle] - own[vehicle] for vehicle in shared]
            if shared:
                found.append(
                    Gain(
                        method=method,
                        model=model,
                        use=use,
                        reference=reference,
                        federated=float(np.mean([own[vehicle] for vehicle in shared])),
                        alone=float(np.mean([alone[vehicle] for vehicle in shared])),
                        saved=estimate(saved),
                        better=sum(one > 0 for one in saved),
                    )
                )
    return found


def federating(run: Run) -> Gain | None:
    """What the run's best-validated method gains over each vehicle alone; None: not known."""
    validated = {m: _validation_rmse(run, m) for m in run.methods}
    finite = [one for one in gains(run) if np.isfinite(validated[one.method])]
    if not finite:
        return None
    best = min((one.method for one in finite), key=validated.__getitem__)
    return [one for one in finite if one.method == best][-1]


def _validation_rmse(run: Run, method: str) -> float:
    """Of the model that a method keeps; of its last one in runs of earlier versions."""
    kept = estimate(final(run, method, "kept_validation_rmse"))
    return kept.mean if kept.seeds else estimate(final(run, method, "validation_rmse")).mean


def gain_headline(one: Gain) -> str:
    """The answer in one line."""
    if not one.saved.above_noise:
        return "Federating gains nothing clear over each vehicle alone on this fleet"
    word = "gains" if one.saved.mean > 0 else "costs"
    return f"Federating {word} {shown(abs(one.percent))} % over each vehicle alone on this fleet"


def gain_sentence(one: Gain, target: Predicted) -> str:
    """The answer with its numbers."""
    word, (low, high) = "saves", (one.saved.low, one.saved.high)
    if one.saved.mean < 0:
        word, (low, high) = "costs", (-high, -low)
    interval = "with one vehicle there is no interval"
    if one.saved.copies:
        interval = "the same for every vehicle"
    elif one.saved.seeds > 1:
        ends = f"{shown(low, target.digits(2))} to {amount(target, high, 2)}"
        interval = f"95 % interval {ends} over {one.saved.seeds} vehicles"
    title = REFERENCES[one.reference].title
    return (
        f"With {one.phrase} the RMSE per window and vehicle is {amount(target, one.federated)}, "
        f"with the best that vehicles have alone ({title}) {amount(target, one.alone)}: federating "
        f"{word} "
        f"{amount(target, abs(one.saved.mean), 2)} ({interval}), and {one.better} of "
        f"{one.saved.seeds} vehicles are better off with it."
    )


def references_table(run: Run) -> Table:
    """Every reference and every federated model by its mean error over vehicles."""
    references = reference_rmse(run)
    rows: list[tuple[Cell, ...]] = []
    best = best_alone(references) if references else ""
    for name, rmse in references.items():
        level = float(np.mean(list(rmse.values())))
        base = references[best]
        saved = estimate([base[v] - rmse[v] for v in rmse]) if name != best else nan
        better: Cell = sum(rmse[v] < base[v] for v in rmse) if name != best else "–"
        rows.append((REFERENCES[name].title, level, saved, better))
    rows += [(one.name, one.federated, one.saved, one.better) for one in gains(run)]
    count = len(references[best]) if references else 0
    unit, digits = run.unit, run.target.digits()
    alone = REFERENCES[best].title if references else ""
    return Table(
        "references",
        "What federating gains over each vehicle alone",
        (
            Column("Model"),
            Column("RMSE, vehicle mean", unit, digits),
            Column("Saved", unit, run.target.digits(2)),
            Column(f"Better vehicles, of {count}"),
        ),
        tuple(rows),
        f"Saved is against the best that vehicles have alone, here {alone}: mean ± standard "
        "deviation over vehicles [95 % interval of the mean]; above zero is better. Every vehicle "
        "counts the same, by its RMSE over the seeds. Local-only networks begin like the federated "
        "ones and take as many steps; learning rate and stopping point are those of the lowest "
        "error on the vehicle's validation windows." + _about_hills(run),
    )


def _about_hills(run: Run) -> str:
    if not any(origin.environment.get("terrain") for origin in run.origins):
        return ""
    return (
        " A local-only vehicle has the elevation map that it learns from its own training trips, "
        "or none if that validates better."
    )
