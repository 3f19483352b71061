"""docs/reproduction.md, written from records: what holds, what does not, why, and what to use.

    python -m reproduction.markdown [--records results/reproduction] [--check]

Reads records that `fedwatt reproduce ... --records DIR` wrote and writes the page, its figures and
the summary in README.md. Every number comes from the records, or from a formula: the same records
give the same bytes, and --check says whether they do. Takes seconds.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fedwatt.files import write_text
from fedwatt.report.svg import saved
from reproduction.advice import advice
from reproduction.catalogue import STUDIES
from reproduction.claims import ASSERTIONS, RULES, WRITTEN, Verdict, verdicts
from reproduction.lab import Lab
from reproduction.made_with import made_with_table
from reproduction.objection import Objection
from reproduction.objections import objections
from reproduction.page import LabView
from reproduction.page_head import head
from reproduction.partial import Done, done, only_run
from reproduction.record import scale_of_records
from reproduction.recorded_setting import setting_of
from reproduction.scale import scale_of
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
    rows = objections(view, found)
    parts = [head(view, lab.count, found, rows), _rules(), _verdicts(found), _objections(rows)]
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


def _rules() -> str:
    rows = "\n".join(f"| {c} | {ASSERTIONS[c]} | {RULES[c]} |" for c in ASSERTIONS)
    written = "\n".join(f"- {line}" for line in WRITTEN)
    return f"""## The rules

Code applies them to the records. *Lower* and *higher* mean: a paired Student t-test over seeds
(over splits where there are several), Holm-corrected over the comparisons of the claim, is below
5 %. A side of which a seed diverged has lost; a seed diverged if it did not stay finite, or ends
with no lower error than its untrained network.

| Claim | It says | It is supported if |
| --- | --- | --- |
{rows}

When they were written, and which records came after a look at others:

{written}
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


def _objections(found: Sequence[Objection]) -> str:
    rows = "\n".join(
        f"| {o.objection} | {o.experiment} | {o.result} | {o.verdict} |" for o in found
    )
    return f"""## Objections and what settles them

What the paper's authors could object to the verdicts. An objection is *upheld* if FO-RI-FedAvg (for
C1: RI-FedAvg's drift) is lower in one of its comparisons, Holm-corrected over them. *Not upheld*
means that no such difference was found, not that there is none: *detectable* is the smallest
difference that would have been found in four of five repetitions, at 5 % over the number of
comparisons.

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
                f"*Partly run: {state[name].ran} of {state[name].cells} cells; `fedwatt reproduce "
                f"{name} --scale {view.setting.scale.name}` continues it.*",
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
        if not made.blocks and not any(line.startswith("![") for line in text):
            text += ["Figures only, which `report.html` has.", ""]
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
