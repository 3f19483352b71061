"""Compare methods with FedAvg by independent datasets: pure functions of the records.

At equal seeds two methods start from the same model, meet the same participants and draw the same
batches, so they are compared seed by seed. Partitions of one fleet are the same trips dealt out
differently: their relative differences are averaged, and they count as one dataset. The built-in
synthetic fleet is shown beside the others and decides nothing. Significance is Student's paired
t-test over seeds with Holm's correction over all methods of a column or question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean
from typing import Final

from comparison.candidates import ALONE, CANDIDATES
from comparison.datasets import DATASETS
from comparison.records import Record
from fedwatt.report.statistics import Estimate
from reproduction.paired import Paired, holm, paired

Records = Mapping[tuple[str, str], Record]
SIGNIFICANT: Final = 0.05
BASELINE: Final = "fedavg"
SYNTHETIC: Final = "synthetic"


@dataclass(frozen=True)
class Standing:
    """A method in a column: its error, and how that differs from FedAvg's at equal seeds."""

    mean: float
    """Wh per window."""
    difference: Estimate
    """Wh per window."""
    p: float
    """Corrected for all methods of the column; NaN for FedAvg."""


@dataclass(frozen=True)
class Column:
    """All methods on one partition, in one view, at equal rounds, bytes or compute."""

    dataset: str
    view: str
    basis: str = "rounds"

    def errors(self, records: Records) -> dict[str, dict[int, float]]:
        """Return method → seed → error, of those that have one in this view."""
        one_model = self.view in ("global", "unseen", "stragglers")
        errors = {}
        for name, candidate in CANDIDATES.items():
            record = records.get((self.dataset, name))
            if record is None or (one_model and candidate.no_global_model):
                continue
            if name == ALONE and self.view.startswith("unseen"):
                continue  # vehicles that share nothing have nothing for unseen ones
            by_seed = record.errors(self.view, self.basis)
            if by_seed:
                errors[name] = by_seed
        return errors

    def standings(self, records: Records) -> dict[str, Standing]:
        """Return every method beside FedAvg, which always has all its rounds."""
        errors = self.errors(records)
        base = errors.get(BASELINE)
        if base is None:
            return {}
        beside = {name: paired(by_seed, base) for name, by_seed in errors.items()}
        rivals = [name for name in errors if name != BASELINE]
        corrected = dict(zip(rivals, holm([beside[name].p for name in rivals]), strict=True))
        return {
            name: Standing(
                fmean(errors[name].values()), beside[name].difference, corrected.get(name, nan)
            )
            for name in errors
        }


@dataclass(frozen=True)
class Question:
    """A comparison over independent datasets: a view of the models, with elevation or not."""

    view: str
    elevation: bool

    @property
    def columns(self) -> dict[str, list[Column]]:
        """Return the columns of every independent dataset: one for each of its partitions."""
        columns: dict[str, list[Column]] = {}
        for case in DATASETS.values():
            if case.elevation == self.elevation and not case.impossible:
                columns.setdefault(case.independent, []).append(Column(case.name, self.view))
        return columns


FINE_TUNED: Final = (Question("personalised", True), Question("personalised", False))
"""The questions that decide, since vehicles use fine-tuned models: with elevation and without."""
QUESTIONS: Final = (*FINE_TUNED, Question("global", True), Question("global", False))


@dataclass(frozen=True)
class Difference:
    """A method's difference from FedAvg in percent: by dataset, and their mean."""

    by_dataset: Mapping[str, Estimate]
    """Independent datasets, the synthetic one included."""
    mean: Paired
    """Over the datasets that decide, seed by seed."""
    p: float
    """Corrected for all methods."""

    @property
    def better(self) -> bool:
        """Return whether the mean is below 0 by more than the noise of seeds."""
        return self.p < SIGNIFICANT and self.mean.difference.mean < 0

    @property
    def worse_somewhere(self) -> bool:
        """Return whether a dataset that decides has a mean above 0."""
        return any(
            difference.mean > 0 for name, difference in self.by_dataset.items() if name != SYNTHETIC
        )


def differences(question: Question, records: Records) -> dict[str, Difference]:
    """Return method → difference, of methods with a result on every partition that decides."""
    errors = {
        name: [column.errors(records) for column in columns]
        for name, columns in question.columns.items()
    }
    deciding = [name for name in errors if name != SYNTHETIC]
    by_method: dict[str, dict[str, dict[int, float]]] = {}
    for method in CANDIDATES:
        percent = {
            name: _percent(method, partitions)
            for name, partitions in errors.items()
            if all({method, BASELINE} <= partition.keys() for partition in partitions)
        }
        if method != BASELINE and deciding and all(name in percent for name in deciding):
            by_method[method] = percent
    means = {
        method: _against_zero(_mean([percent[name] for name in deciding]))
        for method, percent in by_method.items()
    }
    corrected = dict(zip(means, holm([difference.p for difference in means.values()]), strict=True))
    return {
        method: Difference(
            {name: _against_zero(by_seed).difference for name, by_seed in percent.items()},
            means[method],
            corrected[method],
        )
        for method, percent in by_method.items()
    }


def recommend(records: Records) -> str:
    """Return the method to use: FedAvg, unless another one is better by the rule of the page.

    That is a method with a mean difference significantly below 0 in one of the two questions about
    fine-tuned models, and above 0 on no independent dataset of either; of several the lowest.
    """
    answers = [differences(question, records) for question in FINE_TUNED]
    lowest = 0.0
    chosen = BASELINE
    for method in CANDIDATES:
        differences_of_method = [answer[method] for answer in answers if method in answer]
        if len(differences_of_method) < len(answers) or any(
            difference.worse_somewhere for difference in differences_of_method
        ):
            continue
        mean = min(
            (
                difference.mean.difference.mean
                for difference in differences_of_method
                if difference.better
            ),
            default=0.0,
        )
        if mean < lowest:
            lowest = mean
            chosen = method
    return chosen


def _percent(method: str, partitions: Sequence[dict[str, dict[int, float]]]) -> dict[int, float]:
    """Return seed → difference from FedAvg in percent, averaged over partitions of one fleet."""
    seeds = set.intersection(
        *(set(by_method[method]) & set(by_method[BASELINE]) for by_method in partitions)
    )
    return {
        seed: fmean(
            100 * (by_method[method][seed] / by_method[BASELINE][seed] - 1)
            for by_method in partitions
        )
        for seed in sorted(seeds)
    }


def _mean(datasets: Sequence[dict[int, float]]) -> dict[int, float]:
    """Return seed → mean over datasets, each counting once."""
    seeds = set.intersection(*map(set, datasets))
    return {seed: fmean(by_seed[seed] for by_seed in datasets) for seed in sorted(seeds)}


def _against_zero(by_seed: Mapping[int, float]) -> Paired:
    return paired(by_seed, dict.fromkeys(by_seed, 0.0))
