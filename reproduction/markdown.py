"""docs/reproduction.md and README's verdict, written from the records.

    python -m reproduction.markdown [--records results/reproduction] [--check]

The same records give the same bytes; --check tells whether they do.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedwatt.files import write_text
from fedwatt.report.load import labels
from fedwatt.report.table import cell_text
from reproduction.catalogue import STUDIES
from reproduction.cell import Cell
from reproduction.claims import RULES, headline, headline_verdicts, verdicts
from reproduction.controls import baseline_cells, control_cells_of
from reproduction.curves import against, level
from reproduction.data import PURE_EVS, RECORDED
from reproduction.lab import Lab
from reproduction.main_results import plain, tuned
from reproduction.paired import LEVEL, Paired, detectable, gap_text
from reproduction.progress import progress
from reproduction.record import FLAT, Record, scale_of_records
from reproduction.scale import scale_of
from reproduction.study import View, setting_of
from reproduction.tuning import step_length

ROOT: Final = Path(__file__).resolve().parents[1]
BEGIN = "<!-- verdict -->"
END = "<!-- /verdict -->"
"""Marks around the verdict in README.md."""
Lookup = Callable[[str], Record | None]
"""The record of a training on a dataset."""


def write_markdown(lab: Lab, page: Path) -> Path:
    """Write the page."""
    view = View(setting_of(lab), lab)
    setting = view.setting
    scale = view.setting.scale
    rows = progress(STUDIES.values(), view, lab.every)
    text = (
        _templates()
        .get_template("reproduction.md.jinja")
        .render(
            smoke=scale.name == "smoke",
            headline=headline(view),
            verdicts=headline_verdicts(view),
            elsewhere=_elsewhere(view),
            rules=RULES,
            first=setting.ved[0],
            fleet=setting.fleet,
            fleets=list(_fleets(view)),
            pure=f"{PURE_EVS} " if setting.ved[0] in RECORDED else "",
            scale=scale,
            stride=dict(scale.strides).get(setting.ved[0], scale.stride),
            searched=f"`{'`, `'.join(scale.searched)}`",
            cells=f"{len(lab.every):,}",
            studies=len(STUDIES),
            missing=", ".join(
                f"{row.study.name} on `{row.dataset}` {row.missing} ({row.hours_missing:.2g})"
                for row in rows
                if row.missing
            ),
            practice=list(_practice(view)),
            advice=list(_advice(view)),
            flat=_flat(view),
            step=_step(view),
            detectable=_detectable(view),
        )
    )
    write_text(page, text)
    return page


def readme_block(view: View) -> str:
    """Return README's verdict with its marks."""
    verdict = {verdict.claim: verdict for verdict in headline_verdicts(view)}["C6"]
    sentences = [
        headline(view),
        f"Tuned FO-RI-FedAvg on `{view.setting.ved[0]}`: {verdict.number}.",
        "See [the paper, reproduced](docs/reproduction.md).",
    ]
    return "\n".join([BEGIN, " ".join(sentences), END])


def with_block(readme: str, view: View) -> str:
    """Return README.md with the present verdict between its marks; unchanged without marks."""
    before, mark, after = readme.partition(BEGIN)
    _, end, after = after.partition(END)
    return before + readme_block(view) + after if mark and end else readme


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("reproduction"),
        autoescape=False,  # Markdown, no HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def _elsewhere(view: View) -> str:
    """Return the claims whose verdict differs on another dataset."""
    headlines = {verdict.claim: verdict.outcome for verdict in headline_verdicts(view)}
    other = [
        f"{verdict.claim} is {verdict.outcome} on `{verdict.dataset}`"
        for verdict in verdicts(view)
        if verdict.outcome != headlines[verdict.claim]
    ]
    return f"Elsewhere: {'; '.join(other)}." if other else "All other datasets agree."


def _datasets(view: View) -> tuple[str, ...]:
    return (*view.setting.ved, *view.setting.eved)


def _fleets(view: View) -> Iterator[dict[str, str]]:
    for dataset in _datasets(view):
        record = view.get(plain(dataset, "fedavg"))
        if record is None:
            continue
        fleet = record.facts["fleet"]
        yield {
            "name": dataset,
            "source": fleet["source"],
            "vehicles": fleet["vehicles"],
            "train": f"{fleet['windows']['train']:,}",
            "test": f"{fleet['windows']['test']:,}",
            "labels": labels(fleet["labels"]),
        }


def _baseline_cells(view: View, dataset: str) -> list[Cell]:
    return list(baseline_cells(view.setting.scale, dataset).values())


def _baseline(view: View, dataset: str, place: int) -> Record | None:
    """Return the record of local-only (0) or centralised (1) training."""
    return view.get(_baseline_cells(view, dataset)[place])


def _tuned(view: View, dataset: str, method: str) -> Record | None:
    return view.get(tuned(view.setting.scale, dataset, method))


def _practice(view: View) -> Iterator[list[str]]:
    """Yield a row per dataset: FedAvg, the differences from it, and the baselines."""
    for dataset in _datasets(view):
        base = _tuned(view, dataset, "fedavg")
        if base is None:
            continue
        cells = [f"`{dataset}`", cell_text(level(base), 2)]
        for method in ("fo-ri-fedavg", "scaffold"):
            record = _tuned(view, dataset, method)
            cells.append(gap_text(against(record, base), "it", "FedAvg") if record else "not run")
        for place in (0, 1):
            record = _baseline(view, dataset, place)
            cells.append(cell_text(level(record), 2) if record else "not run")
        yield cells


def _sorted(tests: dict[str, Paired]) -> dict[str, list[str]]:
    """Return the datasets of tests by what came out: lower, higher or no clear difference."""
    outcomes: dict[str, list[str]] = {"lower": [], "higher": [], "no clear difference": []}
    for dataset, test in tests.items():
        below = test.below(test.p, LEVEL)
        above = test.above(test.p, LEVEL)
        outcome = "lower" if below else "higher" if above else "no clear difference"
        outcomes[outcome].append(f"`{dataset}` ({gap_text(test, 'it', 'the other', ' Wh')})")
    return {outcome: names for outcome, names in outcomes.items() if names}


def _advice(view: View) -> Iterator[str]:
    """Yield recommendations, each with the datasets on which the records bear it out."""
    pairs: dict[str, tuple[Lookup, Lookup]] = {
        "FedAvg with a tuned learning rate against η₀ = 0.05": (
            lambda d: _tuned(view, d, "fedavg"),
            lambda d: view.get(plain(d, "fedavg")),
        ),
        "SCAFFOLD against FedAvg, both tuned": (
            lambda d: _tuned(view, d, "scaffold"),
            lambda d: _tuned(view, d, "fedavg"),
        ),
        "Local-only training against SCAFFOLD, both tuned": (
            lambda d: _baseline(view, d, 0),
            lambda d: _tuned(view, d, "scaffold"),
        ),
    }
    for name, (first, second) in pairs.items():
        tests = {
            dataset: against(record, other)
            for dataset in _datasets(view)
            if (record := first(dataset)) is not None and (other := second(dataset)) is not None
        }
        if tests:
            listed = (f"{outcome} on {', '.join(d)}" for outcome, d in _sorted(tests).items())
            yield f"{name}: {'; '.join(listed)}."


def _flat(view: View) -> str:
    record = view.get(plain(view.setting.ved[0], "ri-fedavg"))
    if record is None:
        return ""
    share = f"{100 * record.facts['flat']:.0f} %"
    return f"At the paper's radius {share} of roughness indices are below {FLAT:g}."


def _step(view: View) -> str:
    dataset = view.setting.ved[0]
    cells = control_cells_of(dataset)
    fractional = view.get(cells["FO-FedAvg"])
    matched = view.get(cells["FedAvg at FO's mean step"])
    if fractional is None or matched is None:
        return ""
    return (
        f"FO's steps are {step_length(fractional):.2f} times as long as plain ones; minus that "
        f"FedAvg, {gap_text(against(fractional, matched), 'FO-FedAvg', 'FedAvg', ' Wh')}."
    )


def _detectable(view: View) -> str:
    dataset = view.setting.ved[0]
    pair = [_tuned(view, dataset, method) for method in ("fo-ri-fedavg", "fedavg")]
    if pair[0] is None or pair[1] is None:
        return ""
    difference = against(pair[0], pair[1]).difference
    return f"On `{dataset}` a difference of {cell_text(detectable(difference), 2)} Wh would show."


def main() -> None:
    """Write the page and README's verdict, or check that they are what the records give."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "reproduction")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    options = parser.parse_args()
    scale = scale_of(scale_of_records(options.records))
    page = options.docs / "reproduction.md"
    with TemporaryDirectory() as scratch:
        lab = Lab(scale, Path(scratch) / "lab", records=options.records)
        readme = options.readme.read_text(encoding="utf-8")
        block = with_block(readme, View(setting_of(lab), lab))
        if not options.check:
            print(write_markdown(lab, page))
            write_text(options.readme, block)
            return
        made = write_markdown(lab, Path(scratch) / page.name)
        stale = [page.name] if made.read_bytes() != page.read_bytes() else []
        stale += [options.readme.name] if block != readme else []
        print("\n".join(f"{name} is not what the records give." for name in stale) or "The same.")
        sys.exit(bool(stale))


if __name__ == "__main__":
    main()
