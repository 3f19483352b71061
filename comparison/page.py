"""docs/which-method.md, README's recommendation and results/comparison.csv, from the records."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Final

from benchmarks.marked import filled
from comparison.candidates import CANDIDATES
from comparison.datasets import DATASETS
from comparison.evaluate import (
    BASELINE,
    FINE_TUNED,
    SYNTHETIC,
    Column,
    Difference,
    Records,
    differences,
    recommend,
)
from comparison.records import VIEWS
from fedwatt.report.statistics import Estimate

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "which-method.md"
README: Final = ROOT / "README.md"
TABLE: Final = ROOT / "results" / "comparison.csv"
HOW: Final = "[How it was tested](docs/which-method.md)."
MINUS: Final = "\N{MINUS SIGN}"
SHOWN: Final = 5
"""Methods of each question that the page shows: those with the lowest means."""
ALWAYS_SHOWN: Final = ("scaffold", "fo-ri-fedavg")
"""Methods that the page shows whatever their means: the reproduction's best and the paper's own."""
HEADINGS: Final = (
    "dataset", "partition", "elevation", "method", "view", "at_equal", "rmse_wh",
    "difference_wh", "low_wh", "high_wh", "corrected_p", "learning_rate",
)  # fmt: skip


def written(records: Records) -> dict[Path, str]:
    """Return file → text of everything that is written from the records."""
    records = {name: record for name, record in records.items() if name[1] in CANDIDATES}
    sentence = recommendation(records)
    blocks = {
        "recommendation": sentence,
        "comparison parts": parts(records),
        "comparison setting": setting(records),
        "comparison table": table(records),
    }
    return {
        PAGE: filled(PAGE.read_text(encoding="utf-8"), blocks),
        README: filled(README.read_text(encoding="utf-8"), {"recommendation": f"{sentence} {HOW}"}),
        TABLE: as_csv(records),
    }


def recommendation(records: Records) -> str:
    """Return the recommended method in one sentence, the same in all places."""
    method = recommend(records)
    if method == BASELINE:
        why = "no other method is significantly better on independent data"
    else:
        why = "significantly better than FedAvg, and worse on no independent dataset"
    return f"Recommended method: `{method}` ({why})."


def parts(records: Records) -> str:
    """Return what elevation and fine-tuning change of FedAvg's error on VED."""
    level, with_elevation, both = (
        Column(name, view).standings(records)[BASELINE].mean
        for name, view in (
            ("ved base", "global"), ("ved elevation", "global"), ("ved elevation", "personalised"),
        )
    )  # fmt: skip
    return (
        f"Choose elevation and fine-tuning first: on VED, FedAvg's error falls from {level:.1f} to "
        f"{with_elevation:.1f} Wh per one-minute window with a learned elevation map, and to "
        f"{both:.1f} Wh with fine-tuning as well. No method changes as much."
    )


def setting(records: Records) -> str:
    """Return how long, how often and on what methods were compared."""
    plan = next(iter(records.values())).content["plan"]
    devices = Counter(record.content["device"] for record in records.values())
    hours = sum(record.content["seconds"] for record in records.values()) / 3600
    where = ", ".join(f"{device} ({count})" for device, count in devices.most_common())
    methods = len({method for _, method in records})
    return (
        f"{methods} methods, {len(records)} runs, {hours:.1f} process hours on {where}. Each "
        f"method had {plan['trials']} settings tried with {len(plan['tuning_seeds'])} seeds, "
        f"scored by validation error, and results with {len(plan['seeds'])} other seeds, "
        f"{plan['rounds']} rounds of {plan['steps']} local steps."
    )


def table(records: Records) -> str:
    """Return differences of fine-tuned models from FedAvg in percent, by independent dataset."""
    answers = [differences(question, records) for question in FINE_TUNED]
    names = [[name for name in question.columns if name != SYNTHETIC] for question in FINE_TUNED]
    kinds = ("with elevation", "without")
    headings = ["method"]
    for kind, members in zip(kinds, names, strict=True):
        headings += [f"{name}, {kind}" for name in members]
        headings += [f"mean, {kind}; p"] if len(members) > 1 else ["p"]
    headings += [f"beside: {SYNTHETIC}, {kind}" for kind in kinds]
    lines = [f"| {' | '.join(headings)} |", "|---|" + "---|" * (len(headings) - 1)]
    for method in _answer_rows(answers):
        cells = [f"`{method}`"]
        for answer, members in zip(answers, names, strict=True):
            cells += _cells(answer.get(method), members)
        for answer in answers:
            beside = answer[method].by_dataset.get(SYNTHETIC) if method in answer else None
            cells.append("–" if beside is None else _number(beside.mean))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _answer_rows(answers: list[dict[str, Difference]]) -> list[str]:
    """Return the methods with the lowest means of each question, and those always shown."""
    listed: dict[str, None] = {}
    for answer in answers:
        ordered = sorted(answer, key=lambda method: answer[method].mean.difference.mean)
        listed |= dict.fromkeys(ordered[:SHOWN])
    return [method for method in CANDIDATES if method in listed or method in ALWAYS_SHOWN]


def _cells(difference: Difference | None, datasets: list[str]) -> list[str]:
    """Return a cell for each dataset, then one for their mean where they are several, and p."""
    if difference is None:
        return ["–"] * (len(datasets) + 1)
    p = f"{difference.p:.2g}"
    if len(datasets) == 1:
        return [_interval(difference.by_dataset[datasets[0]]), p]
    each = [_number(difference.by_dataset[name].mean) for name in datasets]
    return [*each, f"{_interval(difference.mean.difference)}; {p}"]


def as_csv(records: Records) -> str:
    """Return every method on every partition, in every view, beside FedAvg at equal seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADINGS)
    writer.writerows(rows(records))
    return text.getvalue()


def rows(records: Records) -> Iterator[tuple[str, ...]]:
    """Yield the rows of results/comparison.csv."""
    for column in columns():
        case = DATASETS[column.dataset]
        for method, standing in column.standings(records).items():
            settings = records[column.dataset, method].content["settings"]
            yield (
                case.independent,
                case.fleet,
                "yes" if case.elevation else "no",
                method,
                column.view,
                column.basis,
                f"{standing.mean:.3f}",
                *(_cell(value) for value in (standing.difference.mean, standing.difference.low)),
                _cell(standing.difference.high),
                "" if isnan(standing.p) else f"{standing.p:.3g}",
                f"{settings['learning_rate']:.4g}",
            )


def columns() -> Iterator[Column]:
    """Yield what is compared: every view at equal rounds, and two at equal bytes and compute."""
    for case in DATASETS.values():
        if not case.impossible:
            yield from (Column(case.name, view) for view in VIEWS)
            for view in ("global", "personalised"):
                yield from (Column(case.name, view, basis) for basis in ("bytes", "compute"))


def _cell(value: float) -> str:
    return "" if isnan(value) else f"{value:.3f}"


def _number(value: float) -> str:
    """Return a percentage with its sign, as in "−1.1"."""
    return f"{MINUS if value < 0 else '+'}{abs(value):.1f}"


def _interval(estimate_: Estimate) -> str:
    """Return a percentage with half its 95 % interval, as in "−1.1 ± 0.3"."""
    half = "" if isnan(estimate_.low) else f" ± {(estimate_.high - estimate_.low) / 2:.1f}"
    return _number(estimate_.mean) + half
