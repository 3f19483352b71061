"""Tuning on equal terms: as many trials for every method, each over its documented ranges.

A trial trains a method with all seeds in one stack and scores the mean validation RMSE of the final
models; a seed that diverges makes it the worst there is. Test windows play no part. The first trial
is the method as it was configured, so a tuned method is never worse on validation than that. The
others are drawn by Optuna's tree-structured Parzen estimator, a few at a time, and train in one
stack.

The study lives in a database in the output folder. The draws of a trial depend on the seed, the
method and the trials before it alone, so a study that was killed continues as if it had not been.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedwatt.errors import RunError, SettingError, optional
from fedwatt.federation import History
from fedwatt.federation.together import train_side_by_side
from fedwatt.files import parse_json, write_text
from fedwatt.methods import Method
from fedwatt.randomness import generator
from fedwatt.report.load import Predicted
from fedwatt.report.table import Cell, ReportTable, TableColumn
from fedwatt.runs.config import MethodChoice, RunConfig, choose, from_toml, to_toml
from fedwatt.runs.folder import claim, refuse_other_run
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import run_fleet
from fedwatt.settings import Range
from fedwatt.tuning.grid import connected, fingerprint, run_cells
from fedwatt.windows import Fleet
from fedwatt.windows.targets import Target

RATE: Final = Range(1e-3, 1e-1)
"""η₀, of every method: a method that scales its steps needs another rate than one that does not."""


def ranges_of(method: Method) -> dict[str, Range]:
    """Return the ranges of a method's rate and of its rules' hyperparameters.

    >>> from fedwatt.methods import get
    >>> {name: str(range) for name, range in ranges_of(get("fedprox")).items()}
    {'learning_rate': '0.001 to 0.1, log', 'mu': '0.001 to 1, log'}
    """
    ranges = {"learning_rate": RATE}
    for rule in method.rules:
        for field in fields(rule):
            if field.type in (float, "float") and field.name not in {*rule.ranges, *rule.fixed}:
                raise SettingError(
                    f"{type(rule).__name__} does not tell how to tune {field.name}. Declare it by "
                    "number(), with its range as `tuned` or the reason to leave it as `fixed`."
                )
        ranges |= rule.ranges
    return ranges


STARTUP_TRIALS = 5
"""Trials drawn blindly before the estimator has something to go by, the configured one included."""
TOGETHER = 5  # trials that are drawn and trained at a time


@dataclass(frozen=True)
class Trial:
    """Values of the tuned hyperparameters and what they led to."""

    values: dict[str, float]
    score: float  # validation RMSE in the target's unit, mean over seeds; infinite if one diverged


@dataclass(frozen=True)
class Tuned:
    """A method's study."""

    choice: MethodChoice  # the method as it was configured
    ranges: dict[str, Range]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial with the lowest score; the earlier one of two."""
        return min(self.trials, key=lambda trial: trial.score)

    @property
    def tuned(self) -> MethodChoice:
        """The method with the values of its best trial."""
        return with_values(self.choice, self.best.values)


OnTrial = Callable[[str, int, Tuned], None]
"""Called with (label, trials wanted, study so far), first before a method's next trial."""


def tune(
    config: RunConfig,
    out: Path,
    *,
    trials: int,
    on_trial: OnTrial,
    resume: bool = False,
    seed: int = 0,
    ray: str | None = None,
) -> list[Tuned]:
    """Give every method of `config` the same number of `trials` and store what came out in `out`.

    On a Ray cluster (its address is `ray`) methods are tuned side by side, every stack of trials a
    task; what comes out is the same.

    study.db (Optuna), config.toml (what was tuned), best.toml (ready for `fedwatt run`),
    tuning.json (ranges and all trials), tuning.md (the table).
    """
    if trials < 1:
        raise SettingError(f"trials must be at least 1, got {trials}.")
    optuna = _library()
    for choice in config.methods:
        _configured(choice, config)
    refuse_other_run(config, out, resume)
    fleet = run_fleet(config)
    for choice in config.methods:
        federation_for(config, choice, fleet).check(choice.method)
    with claim(config, out, resume):
        write_text(out / "config.toml", to_toml(config))
        storage = optuna.storages.RDBStorage(f"sqlite:///{out / 'study.db'}")
        try:
            studies = [
                _tune_one(choice, config, storage, trials, seed, on_trial)
                for choice in config.methods
            ]
            if ray is None:
                found = [_finished(study, config, fleet) for study in studies]
            else:
                with connected(ray):
                    found = _finished_on_ray(studies, config, fleet, out / "stacks", ray)
        finally:
            storage.engine.dispose()
        best = replace(config, methods=tuple(one.tuned for one in found))
        write_text(out / "best.toml", to_toml(best))
        about = _as_json(found, seed, config.data.predicts)
        write_text(out / "tuning.json", json.dumps(about, indent=2, ensure_ascii=False))
        write_text(out / "tuning.md", tuning_table(found, config.data.predicts).markdown())
        return found


def scores(choices: Sequence[MethodChoice], config: RunConfig, fleet: Fleet) -> list[float]:
    """Return the mean validation RMSE of each choice's final models; infinite if a seed diverged.

    They train side by side, in one stack where they differ in nothing but numbers.
    """
    # Only the final models are scored, so only they are evaluated.
    sparse = replace(config.training, evaluate_every=config.training.rounds)
    federations = [federation_for(replace(config, training=sparse), c, fleet) for c in choices]
    pairs = list(zip(federations, (choice.method for choice in choices), strict=True))
    if config.asynchronous.buffer:
        trained = [federation.train(method) for federation, method in pairs]
    else:
        trained = train_side_by_side(pairs)
    return [_score(one.history) for one in trained]


Study = Generator[list[MethodChoice], list[float], Tuned]
"""Hands out the choices of the next trials and is sent their scores, until all are done."""


def _finished(study: Study, config: RunConfig, fleet: Fleet) -> Tuned:
    """Return a study carried out in this process."""
    try:
        choices = next(study)
        while True:
            choices = study.send(scores(choices, config, fleet))
    except StopIteration as end:
        tuned: Tuned = end.value
        return tuned


def _finished_on_ray(
    studies: Sequence[Study], config: RunConfig, fleet: Fleet, folder: Path, ray: str
) -> list[Tuned]:
    """Run all studies on Ray, the next trials of each as one cell; finished stacks are stored."""
    found: dict[int, Tuned] = {}
    sent: dict[int, list[float] | None] = dict.fromkeys(range(len(studies)))
    while sent:
        cells: dict[str, tuple[str, ...]] = {}
        asking: dict[int, str] = {}
        for number, results in sent.items():
            study = studies[number]
            try:
                choices = next(study) if results is None else study.send(results)
            except StopIteration as end:
                found[number] = end.value
                continue
            # A configuration for each choice: in one they would have the same label.
            cell = tuple(to_toml(replace(config, methods=(choice,))) for choice in choices)
            asking[number] = f"{choices[0].label}-{fingerprint(cell)[:12]}"
            cells[asking[number]] = cell
        # A fleet on disk would not fit where it is sent: every machine opens it for itself.
        shared = fleet if fleet.mapped is None else None
        gpus = 1 if config.device == "cuda" else 0
        paths = run_cells(cells, score_cell, folder, shared=shared, ray=ray, gpus=gpus)
        sent = {
            number: parse_json((paths[name] / "scores.json").read_text(encoding="utf-8"))
            for number, name in asking.items()
        }
    return [found[number] for number in range(len(studies))]


def score_cell(cell: tuple[str, ...], fleet: Fleet | None, folder: Path) -> None:
    """Write the scores of a stack of trials to scores.json."""
    configs = [from_toml(text, trusted=True) for text in cell]
    config = configs[0]
    if fleet is None:
        fleet = run_fleet(config)
    found = scores([one.methods[0] for one in configs], config, fleet)
    write_text(folder / "scores.json", json.dumps(found))


def _score(history: History) -> float:
    if any(history.last("diverged").values()):
        return inf
    # Of what vehicles would drive with: the global model, unless the method gives them their own.
    mean = float(np.mean(list(history.last("personal_validation_rmse").values())))
    return mean if isfinite(mean) else inf


def with_values(choice: MethodChoice, values: Mapping[str, float]) -> MethodChoice:
    """Return the choice with other values of some hyperparameters, or of its rate."""
    table: dict[str, Any] = {"name": choice.method.name, "label": choice.label}
    if choice.schedule is not None:
        table["schedule"] = choice.schedule
    return choose(table | choice.method.settings | dict(values))


def _configured(choice: MethodChoice, config: RunConfig) -> dict[str, float]:
    """Return the first trial: what the configuration says, refused if it is outside the ranges."""
    learning_rate = choice.training(config.training).learning_rate
    settings: dict[str, Any] = choice.method.settings | {"learning_rate": learning_rate}
    values = {name: float(settings[name]) for name in ranges_of(choice.method)}
    for name, value in values.items():
        own = ranges_of(choice.method)[name]
        if value not in own:
            raise SettingError(
                f"{choice.label}.{name} = {value:g} is outside the range it is tuned in ({own}). "
                "The first trial is the configured method: choose a value inside."
            )
    return values


def _tune_one(
    choice: MethodChoice, config: RunConfig, storage: Any, wanted: int, seed: int, on_trial: OnTrial
) -> Study:
    """Return the study of one method, continued to `wanted` trials."""
    optuna = _library()
    ranges = ranges_of(choice.method)
    space = {
        name: optuna.distributions.FloatDistribution(own.low, own.high, log=own.log)
        for name, own in ranges.items()
    }
    study = optuna.create_study(
        storage=storage, study_name=choice.label, direction="minimize", load_if_exists=True
    )
    terms = {"seed": seed, "ranges": {name: asdict(own) for name, own in ranges.items()}}
    if study.user_attrs.get("terms", terms) != terms:
        raise RunError(
            f"The study of '{choice.label}' was begun with another seed or other ranges, and "
            "trials of two kinds cannot be compared. Choose another --out."
        )
    study.set_user_attr("terms", terms)
    running = optuna.trial.TrialState.RUNNING
    complete = optuna.trial.TrialState.COMPLETE
    scored = study.user_attrs.get("scored", {})
    for left in study.get_trials(states=(running,)):
        # What a kill left unfinished is drawn anew, as if it had never begun; all trials of a stack
        # count or none, since those drawn after them depend on it.
        if str(left.number) in scored:
            study.tell(left.number, float(scored[str(left.number)]))
        else:
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
    done = [Trial(t.params, t.value) for t in study.get_trials(states=(complete,))]
    if len(done) > wanted:
        raise RunError(f"'{choice.label}' already has {len(done)} trials. Ask for as many or more.")
    on_trial(choice.label, wanted, Tuned(choice, ranges, tuple(done)))
    while len(done) < wanted:
        asked = [
            _ask(study, space, choice, config, seed, number)
            for number in range(len(done), min(len(done) // TOGETHER * TOGETHER + TOGETHER, wanted))
        ]
        found = yield [with_values(choice, trial.params) for trial in asked]
        of_trial = zip(asked, found, strict=True)
        study.set_user_attr("scored", {str(trial.number): repr(own) for trial, own in of_trial})
        for trial, result in zip(asked, found, strict=True):
            study.tell(trial, result)
            done.append(Trial(dict(trial.params), result))
        on_trial(choice.label, wanted, Tuned(choice, ranges, tuple(done)))
    return Tuned(choice, ranges, tuple(done))


def _ask(
    study: Any, space: Any, choice: MethodChoice, config: RunConfig, seed: int, number: int
) -> Any:
    """Return the next trial; the first is the method as configured."""
    optuna = _library()
    if number == 0:
        # A kill right after this line leaves the trial waiting; it is not put there twice.
        study.enqueue_trial(_configured(choice, config), skip_if_exists=True)
    draw = int(generator(seed, "tuning", choice.label, number).integers(2**31))
    study.sampler = optuna.samplers.TPESampler(
        seed=draw, n_startup_trials=STARTUP_TRIALS, constant_liar=True
    )
    return study.ask(space)


def tuning_table(found: list[Tuned], target: Target) -> ReportTable:
    """Return the table of tuned settings: range, choice and gain."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        first = one.trials[0]
        best = one.best
        label: tuple[Cell, Cell] = (one.choice.label, len(one.trials))
        rmse = (shown_score(first, target), shown_score(best, target))
        for name, own in one.ranges.items():
            values = (f"{first.values[name]:.3g}", f"{best.values[name]:.3g}")
            rows.append((*label, name, str(own), *values, *rmse))
            # What belongs to the method stands in its first row alone.
            label = ("", "")
            rmse = ("", "")
    headings = ("Method", "Trials", "Hyperparameter", "Range", "Configured", "Chosen")
    errors = [TableColumn(f"RMSE {which}", target.unit) for which in ("configured", "chosen")]
    return ReportTable(
        "tuning",
        "Tuning with the same number of trials for every method",
        (*map(TableColumn, headings), *errors),
        tuple(rows),
        "RMSE on the validation windows, mean over seeds; the first trial of each method is the "
        "configured one. Test windows were not looked at.",
    )


def shown_score(trial: Trial, target: Target, unit: str = "") -> str:
    """Return the result of a trial as text; a number has `unit` after it."""
    digits = Predicted(typical=target.typical).digits(2)
    return f"{trial.score:.{digits}f}{unit}" if isfinite(trial.score) else "diverged"


def _as_json(found: list[Tuned], seed: int, target: Target) -> dict[str, Any]:
    def trial(one: Trial) -> dict[str, Any]:
        score = one.score if isfinite(one.score) else None
        return {"values": one.values, "validation_rmse": score}

    counts = {"startup_trials": STARTUP_TRIALS, "trials_at_a_time": TOGETHER}
    return {
        "format": 2,
        "objective": "validation RMSE of the final model, mean over seeds; null: diverged",
        "unit": target.unit,
        "sampler": {"name": "TPE", **counts, "seed": seed},
        "trials_per_method": len(found[0].trials),
        "methods": {
            one.choice.label: {
                "ranges": {name: asdict(own) for name, own in one.ranges.items()},
                "chosen": trial(one.best),
                "trials": [trial(own) for own in one.trials],
            }
            for one in found
        },
    }


def _library() -> Any:
    """Import Optuna without its log, or raise a SettingError that names the extra."""
    needed = "Tuning needs Optuna: pip install 'fedwatt[tune]'."
    optuna = optional("optuna", needed, SettingError)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
