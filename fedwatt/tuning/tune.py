"""Hyperparameter tuning with the same number of trials for every method, over documented ranges.

A trial trains a method with all seeds in one stack. Its score is the mean validation RMSE of the
final models, or infinity if a seed diverges; test windows are not used. The first trial is the
method as configured, so a tuned method never validates worse than that. Optuna's tree-structured
Parzen estimator draws the other trials, five at a time, and these train in one stack.

The study lives in a database in the output folder. The draws of a trial depend on the seed, the
method and the trials before it alone, so a study that was killed continues as if it had not been.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.errors import RunError, SettingError, optional
from fedwatt.federation import History
from fedwatt.federation.federation import train_side_by_side
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

RATE = Range(1e-3, 1e-1)
"""Range of η₀, tuned for every method: methods that scale their steps need other values."""


def ranges_of(method: Method) -> dict[str, Range]:
    """Return the ranges of a method's learning rate and of its rules' hyperparameters.

    >>> from fedwatt.methods import get
    >>> {name: str(range) for name, range in ranges_of(get("fedprox")).items()}
    {'learning_rate': '0.001 to 0.1, log', 'mu': '0.001 to 1, log'}
    """
    ranges = {"learning_rate": RATE}
    for rule in method.rules:
        for field in fields(rule):
            if field.type in (float, "float") and field.name not in {*rule.ranges, *rule.fixed}:
                raise SettingError(
                    f"{type(rule).__name__} declares no range for {field.name}. Declare it by "
                    "number(), with its range as `tuned` or the reason to leave it as `fixed`."
                )
        ranges |= rule.ranges
    return ranges


STARTUP_TRIALS = 5
"""Trials before the estimator learns from scores; the configured one and random draws."""
TOGETHER = 5  # trials that are drawn and trained at a time


@dataclass(frozen=True)
class Trial:
    """Values of the tuned hyperparameters and their score."""

    values: dict[str, float]
    score: float  # validation RMSE in the target's unit, mean over seeds; infinite if one diverged


@dataclass(frozen=True)
class Tuned:
    """The trials of one method."""

    choice: MethodChoice  # the method as configured
    ranges: dict[str, Range]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The trial with the lowest score; the earlier one of two."""
        return min(self.trials, key=lambda trial: trial.score)

    @property
    def tuned(self) -> MethodChoice:
        """The method with the values of its best trial."""
        return _with_values(self.choice, self.best.values)


OnTrial = Callable[[str, int, Tuned], None]
"""Called with (label, number of trials to run, trials so far) after each stack of trials, and once
before a method's first new stack."""


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
    """Tune every method of `config` with the same number of `trials` and write the results.

    On a Ray cluster (at the address `ray`) each stack of trials is a task and methods are tuned
    side by side, with the same results.

    Files in `out`: study.db (Optuna), config.toml (the methods as configured), best.toml (ready for
    `fedwatt run`), tuning.json (ranges and all trials), tuning.md (the table).
    """
    if trials < 1:
        raise SettingError(f"trials must be at least 1, got {trials}.")
    optuna = _library()
    for choice in config.methods:
        _configured_values(choice, config)
    refuse_other_run(config, out, resume)
    fleet = run_fleet(config)
    for choice in config.methods:
        federation_for(config, choice, fleet).check(choice.method)
    with claim(config, out, resume):
        write_text(out / "config.toml", to_toml(config))
        storage = optuna.storages.RDBStorage(f"sqlite:///{out / 'study.db'}")
        try:
            studies = {
                choice.label: _study(choice, config, storage, trials, seed, on_trial)
                for choice in config.methods
            }
            if ray is None:
                results = _run_studies(
                    studies,
                    lambda stacks: {n: scores(c, config, fleet) for n, c in stacks.items()},
                )
            else:
                with connected(ray):
                    on_ray = partial(
                        _scores_on_ray, config=config, fleet=fleet, folder=out / "stacks", ray=ray
                    )
                    results = _run_studies(studies, on_ray)
        finally:
            storage.engine.dispose()
        best = replace(config, methods=tuple(result.tuned for result in results))
        target = config.data.predicts
        write_text(out / "best.toml", to_toml(best))
        record = _as_json(results, seed, target)
        write_text(out / "tuning.json", json.dumps(record, indent=2, ensure_ascii=False))
        write_text(out / "tuning.md", tuning_table(results, target).markdown())
        return results


def scores(choices: Sequence[MethodChoice], config: RunConfig, fleet: Fleet) -> list[float]:
    """Return the mean validation RMSE of each choice's final models; infinite if a seed diverged.

    Choices that differ only in numbers train in one stack.
    """
    # Only the final models are scored, so only they are evaluated.
    sparse = replace(config.training, evaluate_every=config.training.rounds)
    federations = [federation_for(replace(config, training=sparse), c, fleet) for c in choices]
    pairs = list(zip(federations, (choice.method for choice in choices), strict=True))
    if config.asynchronous.buffer:
        results = [federation.train(method) for federation, method in pairs]
    else:
        results = train_side_by_side(pairs)
    return [_score(result.history) for result in results]


Study = Generator[list[MethodChoice], list[float], Tuned]
"""Yields the choices of the next stack of trials and is sent their scores, until all are done."""


Stacks = dict[str, list[MethodChoice]]
"""By the label of their method, trials that train in one stack."""
Scores = dict[str, list[float]]


def _run_studies(
    studies: Mapping[str, Study], score_stacks: Callable[[Stacks], Scores]
) -> list[Tuned]:
    """Run all studies to their end, the next stack of each of them at a time."""
    finished: dict[str, Tuned] = {}
    results: dict[str, Any] = dict.fromkeys(studies)
    while results:
        stacks: Stacks = {}
        for label, study_scores in results.items():
            try:
                stacks[label] = studies[label].send(study_scores)
            except StopIteration as end:
                finished[label] = end.value
        results = score_stacks(stacks) if stacks else {}
    return [finished[label] for label in studies]


def _scores_on_ray(
    stacks: Stacks, config: RunConfig, fleet: Fleet, folder: Path, ray: str
) -> Scores:
    """Score the stacks on a Ray cluster, each as one task."""
    # A configuration for each choice: in one they would have the same label.
    texts = {
        label: tuple(to_toml(replace(config, methods=(choice,))) for choice in choices)
        for label, choices in stacks.items()
    }
    names = {label: f"{label}-{fingerprint(cell)[:12]}" for label, cell in texts.items()}
    paths = run_cells(
        {names[label]: cell for label, cell in texts.items()},
        score_cell,
        folder,
        shared=fleet,
        ray=ray,
        gpus=1 if config.device == "cuda" else 0,
    )
    return {
        label: parse_json((paths[name] / "scores.json").read_text(encoding="utf-8"))
        for label, name in names.items()
    }


def score_cell(cell: tuple[str, ...], fleet: Fleet | None, folder: Path) -> None:
    """Write the scores of a stack of trials to scores.json."""
    configs = [from_toml(text, trusted=True) for text in cell]
    choices = [config.methods[0] for config in configs]
    results = scores(choices, configs[0], fleet or run_fleet(configs[0]))
    write_text(folder / "scores.json", json.dumps(results))


def _score(history: History) -> float:
    if any(history.last("diverged").values()):
        return inf
    # Of the personalised models where the method has them, else of the global one.
    mean = float(np.mean(list(history.last("personal_validation_rmse").values())))
    return mean if isfinite(mean) else inf


def _with_values(choice: MethodChoice, values: Mapping[str, float]) -> MethodChoice:
    """Return the choice with other values of some hyperparameters, or of its learning rate."""
    table: dict[str, Any] = {"name": choice.method.name, "label": choice.label}
    if choice.schedule is not None:
        table["schedule"] = choice.schedule
    return choose(table | choice.method.settings | dict(values))


def _configured_values(choice: MethodChoice, config: RunConfig) -> dict[str, float]:
    """Return the configured values, those of the first trial; refuse any outside its range."""
    learning_rate = choice.training(config.training).learning_rate
    settings: dict[str, Any] = choice.method.settings | {"learning_rate": learning_rate}
    ranges = ranges_of(choice.method)
    values = {name: float(settings[name]) for name in ranges}
    for name, value in values.items():
        if value not in ranges[name]:
            raise SettingError(
                f"{choice.label}.{name} = {value:g} is outside its range for tuning "
                f"({ranges[name]}). The first trial is the configured method: choose a value "
                "inside."
            )
    return values


def _study(
    choice: MethodChoice, config: RunConfig, storage: Any, count: int, seed: int, on_trial: OnTrial
) -> Study:
    """Run the study of one method, or continue it, to `count` trials."""
    optuna = _library()
    ranges = ranges_of(choice.method)
    space = {
        name: optuna.distributions.FloatDistribution(interval.low, interval.high, log=interval.log)
        for name, interval in ranges.items()
    }
    study = optuna.create_study(
        storage=storage, study_name=choice.label, direction="minimize", load_if_exists=True
    )
    terms = {"seed": seed, "ranges": {name: asdict(ranges[name]) for name in ranges}}
    if study.user_attrs.get("terms", terms) != terms:
        raise RunError(
            f"The study of '{choice.label}' was begun with another seed or other ranges, and "
            "trials of two kinds cannot be compared. Choose another --out."
        )
    study.set_user_attr("terms", terms)
    states = optuna.trial.TrialState
    scored = study.user_attrs.get("scored", {})
    for interrupted in study.get_trials(states=(states.RUNNING,)):
        # All trials of a stack count or none, because later draws depend on them. Those that a kill
        # left without a score are drawn again.
        score = scored.get(str(interrupted.number))
        if score is None:
            study.tell(interrupted.number, state=states.FAIL)
        else:
            study.tell(interrupted.number, float(score))
    done = [Trial(t.params, t.value) for t in study.get_trials(states=(states.COMPLETE,))]
    if len(done) > count:
        raise RunError(f"'{choice.label}' already has {len(done)} trials. Ask for as many or more.")
    on_trial(choice.label, count, Tuned(choice, ranges, tuple(done)))
    while len(done) < count:
        end = min(len(done) // TOGETHER * TOGETHER + TOGETHER, count)
        stack = [
            _next_trial(study, space, choice, config, seed, number)
            for number in range(len(done), end)
        ]
        results = yield [_with_values(choice, trial.params) for trial in stack]
        scored = {
            str(trial.number): repr(score) for trial, score in zip(stack, results, strict=True)
        }
        study.set_user_attr("scored", scored)
        for trial, score in zip(stack, results, strict=True):
            study.tell(trial, score)
            done.append(Trial(dict(trial.params), score))
        on_trial(choice.label, count, Tuned(choice, ranges, tuple(done)))
    return Tuned(choice, ranges, tuple(done))


def _next_trial(
    study: Any, space: Any, choice: MethodChoice, config: RunConfig, seed: int, number: int
) -> Any:
    """Return the next trial; the first is the method as configured."""
    optuna = _library()
    # A kill right after the first trial is queued leaves it in the queue.
    if number == 0 and not study.get_trials(states=(optuna.trial.TrialState.WAITING,)):
        study.enqueue_trial(_configured_values(choice, config))
    draw = int(generator(seed, "tuning", choice.label, number).integers(2**31))
    study.sampler = optuna.samplers.TPESampler(
        seed=draw, n_startup_trials=STARTUP_TRIALS, constant_liar=True
    )
    return study.ask(space)


def tuning_table(results: list[Tuned], target: Target) -> ReportTable:
    """Return the table of tuned hyperparameters: range, configured and chosen value, RMSE."""
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        first = result.trials[0]
        best = result.best
        label: tuple[Cell, Cell] = (result.choice.label, len(result.trials))
        rmse = (shown_score(first, target), shown_score(best, target))
        for name, interval in result.ranges.items():
            values = (f"{first.values[name]:.3g}", f"{best.values[name]:.3g}")
            rows.append((*label, name, str(interval), *values, *rmse))
            # Only a method's first row has its label and errors.
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
        "configured one. Test windows were not used.",
    )


def shown_score(trial: Trial, target: Target, unit: str = "") -> str:
    """Return the score of a trial as text, followed by `unit`; "diverged" if it is infinite."""
    digits = Predicted(typical=target.typical).digits(2)
    return f"{trial.score:.{digits}f}{unit}" if isfinite(trial.score) else "diverged"


def _as_json(results: list[Tuned], seed: int, target: Target) -> dict[str, Any]:
    def row(trial: Trial) -> dict[str, Any]:
        score = trial.score if isfinite(trial.score) else None
        return {"values": trial.values, "validation_rmse": score}

    counts = {"startup_trials": STARTUP_TRIALS, "trials_at_a_time": TOGETHER}
    return {
        "format": 2,
        "objective": "validation RMSE of the final model, mean over seeds; null: diverged",
        "unit": target.unit,
        "sampler": {"name": "TPE", **counts, "seed": seed},
        "trials_per_method": len(results[0].trials),
        "methods": {
            result.choice.label: {
                "ranges": {name: asdict(interval) for name, interval in result.ranges.items()},
                "chosen": row(result.best),
                "trials": [row(trial) for trial in result.trials],
            }
            for result in results
        },
    }


def _library() -> Any:
    """Return Optuna with its log switched down; refuse with an install command without it."""
    optuna = optional("optuna", "Tuning needs Optuna: pip install 'fedwatt[tune]'.", SettingError)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
