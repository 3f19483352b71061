"""docs/reproduction.md, written from records: what holds, what does not, why, and what to use.

    python -m reproduction.markdown [--records results/reproduction] [--check]

Reads records that `fedwatt reproduce ... --records DIR` wrote and writes the page, its figures and
the summary in README.md. Every number comes from the records, or from a formula: the same records
give the same bytes, and --check says whether they do. Takes seconds.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fedwatt.files import write_text
from fedwatt.report.style import name_of
from fedwatt.report.svg import saved
from reproduction.advice import advice
from reproduction.catalogue import STUDIES
from reproduction.cell import Cell, data_settings
from reproduction.claims import ASSERTIONS, RULES, WRITTEN, Verdict, verdicts
from reproduction.data import PURE_EVS, QUALIFY, RECORDED
from reproduction.lab import Lab
from reproduction.made_with import made_with_table
from reproduction.main_results import main_cells, plain
from reproduction.objections import objections
from reproduction.order import identity
from reproduction.page import LabView
from reproduction.partial import Done, done, only_run
from reproduction.record import Record, scale_of_records
from reproduction.recorded_setting import setting_of
from reproduction.scale import scale_of
from reproduction.settle import RATE
from reproduction.study import NOTHING, Block, View
from reproduction.summary import summary_lines
from reproduction.why import why

FIGURES: Final = {
    "search": ("search",),
    "convergence": ("test-rmse",),
    "drift": ("drift-mean",),
    "rates": ("rates-stride", "rates-skew-moderate", "rates-fair"),
    "scaling": ("scaling-rmse",),
}
"""Study → beginnings of the names of figures that the page shows; the report has all of them."""
ROOT: Final = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- what to use: begin -->", "<!-- what to use: end -->"
"""Around the summary in README.md."""


def write_markdown(lab: Lab, page: Path) -> Path:
    """The page, with its figures in the folder figures/ beside it."""
    view = LabView(setting_of(lab), lab)
    for stale in (page.parent / "figures").glob("reproduction_*.svg"):
        stale.unlink()
    found = verdicts(view)
    parts = [_head(view, lab), _rules(), _verdicts(found), _objections(view, found)]
    parts += [_practice(view), *_studies(view, page.parent), why(view)]
    parts += [made_with_table(lab.every).markdown(), _again(view)]
    write_text(page, "\n".join(part.rstrip() + "\n" for part in parts))
    return page


def summary(lab: Lab) -> str:
    """The block in README.md, with its marks."""
    return "\n".join([BEGIN, *summary_lines(LabView(setting_of(lab), lab)), END])


def with_summary(readme: str, lab: Lab) -> str:
    """README.md with the present summary between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + summary(lab) + after


def _head(view: View, lab: Lab) -> str:
    scale = view.setting.scale
    warning = (
        '!!! warning "Smoke scale"\n'
        f"    These records are {scale.rounds} rounds with {len(scale.seeds)} seeds on little "
        "data. They show that every study runs; nothing below is a finding.\n\n"
        if scale.name == "smoke"
        else ""
    )
    found = [r for d in (*view.setting.ved, *view.setting.eved) if (r := _any_record(view, d))]
    lines = []
    for record in found:
        fleet, windows = record.facts["fleet"], record.facts["fleet"]["windows"]
        kind = "simulated" if fleet["labels"]["simulated"] else "measured"
        settings = data_settings(record.cell, scale)
        lines.append(
            f"- `{record.cell.dataset}`: {fleet['source']}, K = {fleet['vehicles']}, "
            f"{windows['train']:,} training windows of a minute, {settings.stride} s apart, and "
            f"{windows['test']:,} test windows, {settings.evaluation_stride} s apart; energy "
            f"{kind}; main results trained on {_devices(view, record.cell.dataset)}."
        )
    return f"""# The paper, reproduced

<!-- Written by reproduction/markdown.py from results/reproduction. Do not edit by hand. -->

{warning}`fedwatt reproduce` regenerates the evidence of the FO-RI-FedAvg paper, each result beside
the printed one. This page tells what came out, from the records in `results/reproduction`.

{chr(10).join(lines)}
{_progress(view)}- T = {scale.rounds} rounds, seeds {_listed(scale.seeds)}, C = 0.3, E = 1, \
B = 64, η₀ = 0.05 with 1/√(t+1) and global probe rounds, as the paper has them; {lab.count} cells \
in all.
{_recorded(found)}{_reductions(view)}"""


def _progress(view: View) -> str:
    """How much has run, where that is not all."""
    state = done(STUDIES.values(), view)
    complete = sum(own.complete for own in state.values())
    if complete == len(state):
        return ""
    return (
        f"- {complete} of {len(state)} studies have run completely. Machine time was spent "
        "before the others had run: rows and claims whose cells are missing are named, never "
        "filled in. This page at commit 5e4909f of the repository has them under an older "
        "protocol (six trials of 60 rounds, probes by age, another split of trips).\n"
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _reductions(view: View) -> str:
    """Whatever is smaller or otherwise than the paper's protocol."""
    scale = view.setting.scale
    full = [d for _, d in view.setting.places if d in scale.searched]
    spared = [name_of(m) for m in view.setting.among(scale.unsearched)]
    lines = [
        f"On {', '.join(full)}, *tuned* means {scale.trials} trials a method, over the "
        "hyperparameters of its search (of FO-RI-FedAvg the rate, α, λ and τ; the radius ℓ of the "
        "probe and its other settings, clips and δ are the paper's; the map varies ℓ), by "
        f"validation error, over {scale.tuning_rounds} rounds and the seeds "
        f"{_listed(scale.tuning_seeds)}, which are used for nothing else"
        + (f"; of {', '.join(spared)} only the rate is tuned" if spared else "")
        + ".",
        "On other datasets, under skew, with noisy clients and with windows a second apart, "
        f"*tuned* means that the rate is the best of {_listed((*scale.rates, RATE))} by validation "
        f"error after {scale.rate_rounds} rounds ({scale.stride_rounds} with windows a second "
        "apart, or all where there are fewer), with the seed "
        f"{_listed(scale.rate_seeds)}; the other hyperparameters are the defaults.",
        "The paper's windows start every second, so that two neighbours share 59 of their 60 "
        "seconds. Here they start as far apart as told above, except in the studies `stride` "
        f"(T = {scale.stride_rounds}, whose rounds have five times the steps, and once more as "
        f"printed, T = {scale.printed_rounds}) and `workload` (T = {scale.work_rounds}).",
        f"Studies of many cells have the seeds {_listed(scale.few_seeds)}, further splits "
        f"{_listed(scale.split_seeds)}; the map of engagement has {_listed(scale.map_seeds)} and "
        f"T = {scale.map_rounds}; GRU and LSTM have {scale.recurrent_rounds} rounds of windows "
        f"{scale.recurrent_stride} s apart.",
        "Acceleration is smoothed over seconds up to two past the end of a window; the study "
        "`causal` has it without.",
        "FedEL alone has slow devices (a quarter of the vehicles each at full, half, a third and a "
        "quarter of the speed), without which it is FedAvg; the study `devices` gives them to "
        "every method.",
        "Seeds share one split of the trips, so that their intervals cover the randomness of "
        "training; the study `splits` covers the trips as well.",
        "A number of a dataset that only stands in for the paper's is never subtracted from a "
        "printed one.",
    ]
    return "".join(f"- {line}\n" for line in lines)


def _devices(view: View, dataset: str) -> str:
    """On what the main results of a dataset were trained: most of them first, with counts."""
    cells = {identity(c, view.setting.scale): c for c in main_cells(view.setting)}
    records = [r for c in cells.values() if c.dataset == dataset and (r := view.get(c))]
    found = Counter(str(record.facts["device"]) for record in records).most_common()
    if len(found) == 1:
        return found[0][0]
    return " and ".join(f"{device} ({count} main cells)" for device, count in found)


def _any_record(view: View, dataset: str) -> Record | None:
    """A record of a dataset as it is."""
    cells: list[Cell] = [plain(dataset, m) for m in view.setting.methods]
    cells += [c for c in main_cells(view.setting) if c.dataset == dataset]
    return next((r for cell in cells if (r := view.get(cell)) is not None), None)


def _recorded(found: Sequence[Record]) -> str:
    """What is to be known of recorded fleets; empty where none is on the page."""
    if not any(record.cell.dataset in RECORDED for record in found):
        return ""
    return f"- {PURE_EVS} A vehicle qualifies with at least {QUALIFY} trips.\n"


def _rules() -> str:
    rows = "\n".join(f"| {c} | {ASSERTIONS[c]} | {RULES[c]} |" for c in ASSERTIONS)
    return f"""## The rules

{WRITTEN} Code applies all of them. *Lower* and *higher* mean: a
paired Student t-test over seeds (over splits where there are several), Holm-corrected over the
comparisons of the claim, is below 5 %. A side of which a seed diverged has lost; a seed diverged if
it did not stay finite, or ends with no lower error than its untrained network.

| Claim | It says | It is supported if |
| --- | --- | --- |
{rows}
"""


def _verdicts(found: Sequence[Verdict]) -> str:
    rows = "\n".join(
        f"| {v.claim} | {v.dataset} | **{v.outcome}** | {' '.join(v.sentences)} |" for v in found
    )
    return f"""## What holds, and what does not

Brackets are 95 % intervals.

| Claim | Dataset | Verdict | Numbers |
| --- | --- | --- | --- |
{rows}
"""


def _objections(view: View, found: Sequence[Verdict]) -> str:
    rows = "\n".join(
        f"| {o.objection} | {o.experiment} | {o.result} | {o.verdict} |"
        for o in objections(view, found)
    )
    return f"""## Objections and what settles them

What the paper's authors could object to the verdicts. An objection is *upheld* if FO-RI-FedAvg (for
C1: RI-FedAvg's drift) is lower in one of its comparisons, Holm-corrected over them; *detectable* is
the smallest effect that would have been found in four of five repetitions, at 5 % over their
number.

| Objection | Experiment | Result | Verdict |
| --- | --- | --- | --- |
{rows}
"""


def _practice(view: View) -> str:
    table = "\n".join(summary_lines(view))
    lines = "\n".join(f"- {line}" for line in advice(view))
    return f"""## What to use in practice

{table}

In full, with every training held against FedAvg at its best rate, over splits of the trips where
several ran and otherwise over seeds, Holm-corrected over all of a dataset:

{lines}
- [Accuracy](accuracy.md) has the numbers of what lies beyond the optimiser, on splits of its own.
- The paper's printed numbers contradict each other in places; the files in `reproduction/paper` say
  where. Its table of 50 to 200 clients is estimated.
"""


def _studies(view: View, folder: Path) -> list[str]:
    parts = []
    state = done(STUDIES.values(), view)
    for name, study in STUDIES.items():
        if not state[name].begun:
            continue
        made = study.show(view)
        text = [f"## {study.title}", ""]
        if not state[name].complete:
            text += [
                f"*Partly run: {state[name].ran} of {state[name].cells} cells; "
                f"`fedwatt reproduce {name}` continues it.*",
                "",
            ]
        for picture in made.pictures:
            wanted = picture.name.startswith(FIGURES.get(name, ()))
            if wanted and picture.facts != NOTHING:
                file = f"figures/reproduction_{picture.name}.svg"
                write_text(folder / file, saved(picture.figure).decode())
                text += [
                    f"![{picture.title}]({file})",
                    "",
                    f"{picture.caption} {picture.facts}",
                    "",
                ]
        text += [f"{remark}\n" for remark in made.remarks]
        facts = ""
        for block in made.blocks:
            text += _table(block, facts)
            facts = block.facts
        parts.append("\n".join(text))
    return [*parts, _not_run(view, state)]


def _table(block: Block, before: str) -> list[str]:
    """The rows that have run, the names of those that have not, and facts unless told `before`."""
    table, missing, single = only_run(block.table)
    if not table.rows:
        return [f"**{table.title}**: {'only one setting was run' if single else 'not run'}.", ""]
    lines = [table.markdown()]
    if missing:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    if single:
        lines += [f"Only one setting was run for {', '.join(single)}.", ""]
    return lines if block.facts == before else [*lines, f"*{block.facts}*", ""]


def _not_run(view: View, state: Mapping[str, Done]) -> str:
    """Studies of which nothing has run."""
    nothing = [s for name, s in STUDIES.items() if not state[name].begun]
    if not nothing:
        return ""
    return "\n".join(
        [
            "## Not run",
            "",
            "These studies have not run at this scale; see `fedwatt reproduce NAME --scale "
            f"{view.setting.scale.name}`.",
            "",
            *(f"- `{study.name}`: {study.title}" for study in nothing),
        ]
    )


def _again(view: View) -> str:
    return f"""## Do it again

    fedwatt reproduce --list
    fedwatt reproduce all --scale smoke
    fedwatt reproduce main controls --scale {view.setting.scale.name} --data PATH/TO/DATA --plan
    fedwatt reproduce main controls --scale {view.setting.scale.name} --data PATH/TO/DATA \\
        --records results/reproduction
    python -m reproduction.markdown --check    # judge again from the records alone
    fedwatt reproduce verify --data PATH/TO/DATA    # run three of them again

Cells are kept in `runs/reproduction` under the hash of what determines them, so the same command
continues where it stopped; `python -m reproduction.batch` fills a GPU and all cores for a given
time. `verify` draws three cells of the records at random, runs them again and compares every
number: to the last bit on the machine, engine version and libraries of the record, within a stated
tolerance elsewhere. On a CPU the records of a cell are the same bit for bit each time, whatever the
number of cores; its times are not.
`report.html` has every table and figure, with switches for the methods.
"""


def differing(made: Path, kept: Path) -> list[str]:
    """Names of the page's files that are not the same bytes in two folders."""
    names = {
        str(file.relative_to(folder))
        for folder in (made, kept)
        for file in (folder / "reproduction.md", *folder.glob("figures/reproduction_*.svg"))
        if file.is_file()
    }
    return sorted(
        name
        for name in names
        if not ((made / name).is_file() and (kept / name).is_file())
        or (made / name).read_bytes() != (kept / name).read_bytes()
    )


def main() -> None:
    """Write the page, its figures and the summary, or check that they are what records give."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=ROOT / "results" / "reproduction")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    asked = parser.parse_args()
    scale = scale_of(scale_of_records(asked.records))
    with TemporaryDirectory() as scratch:
        lab = Lab(scale, Path(scratch) / "lab", records=asked.records)
        readme = asked.readme.read_text(encoding="utf-8")
        if asked.check:
            write_markdown(lab, Path(scratch) / "reproduction.md")
            wrong = differing(Path(scratch), asked.docs)
            wrong += [asked.readme.name] if with_summary(readme, lab) != readme else []
            print(
                "\n".join(f"{name} is not what the records give." for name in wrong) or "The same."
            )
            sys.exit(bool(wrong))
        print(write_markdown(lab, asked.docs / "reproduction.md"))
        write_text(asked.readme, with_summary(readme, lab))


if __name__ == "__main__":
    main()
