"""docs/reproduction.md, written from records: what holds, what does not, why, and what to use.

    python -m reproduction.markdown [--records results/reproduction]

Reads records that `fedwatt reproduce ... --records DIR` wrote and writes the page with its figures.
Every number of the page comes from them, or from a formula. Takes seconds.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from math import gamma, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from fedwatt.files import write_text
from fedwatt.methods import Fractional
from fedwatt.report.style import name_of
from fedwatt.report.svg import saved
from fedwatt.report.table import shown
from reproduction.ablations import variant
from reproduction.catalogue import STUDIES
from reproduction.cell import data_settings
from reproduction.claims import Verdict, verdicts
from reproduction.controls import control_cells_of
from reproduction.data import PURE_EVS, RECORDED, SPLIT_BY_PART
from reproduction.judges import divergence, level
from reproduction.lab import Lab
from reproduction.made_with import made_with_table
from reproduction.main_results import main_cells, plain, tuned
from reproduction.mechanism import carrier, coupling_values
from reproduction.order import identity
from reproduction.page import LabView
from reproduction.partial import Done, done, only_run
from reproduction.record import FLAT, Record, scale_of_records
from reproduction.recorded_setting import setting_of
from reproduction.scale import scale_of
from reproduction.settle import mean_pull
from reproduction.study import Block, View

TABLES: Final = {
    "main": ("-rmse", "-mae"),
    "ablations": ("",),
    "alpha": ("",),
    "gate": ("gate-",),
    "coupling": ("",),
    "tertiles": ("",),
    "participation": ("-rmse", "-against"),
    "churn": ("-rmse",),
    "vehicle-types": ("-rmse",),
    "architectures": ("-rmse",),
    "scaling": ("-rmse",),
    "stress": ("",),
    "controls": ("",),
}
"""Study → parts of the names of its tables that the page shows; the report has all of them."""
FIGURES: Final = {"convergence": "test-rmse", "drift": "drift-mean"}
"""Study → beginning of the name of the figure that the page shows."""


def write_markdown(lab: Lab, page: Path) -> Path:
    """The page, with its figures in the folder figures/ beside it."""
    view = LabView(setting_of(lab), lab)
    for stale in (page.parent / "figures").glob("reproduction_*.svg"):
        stale.unlink()
    parts = [_head(view, lab), _verdicts(verdicts(view)), *_studies(view, page.parent)]
    parts += [_why(view), _practice(view), made_with_table(lab.every).markdown(), _again()]
    write_text(page, "\n".join(part.rstrip() + "\n" for part in parts))
    return page


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
            f"{kind}; main results trained on {_devices(view, record.cell.dataset)}"
            f"{_split_remark(record)}."
        )
    return f"""# The paper, reproduced

<!-- Written by reproduction/markdown.py from results/reproduction. Do not edit by hand. -->

{warning}`fedwatt reproduce` regenerates the evidence of the FO-RI-FedAvg paper, each result beside
the printed one. This page tells what came out, from the records in `results/reproduction`.

{chr(10).join(lines)}
- T = {scale.rounds} rounds, seeds {", ".join(map(str, scale.seeds))}, C = 0.3, E = 1, B = 64, \
η₀ = 0.05 with 1/√(t+1), as the paper has them; {lab.count} cells in all.
{_recorded(found)}- *Tuned* means {scale.trials} trials a method, over its own ranges, by \
validation error, on other \
seeds ({", ".join(map(str, scale.tuning_seeds))}) and {scale.tuning_rounds} rounds.
- All seeds share one fleet and one split of its trips. Intervals cover the randomness of \
training, not that of another fleet.
"""


def _split_remark(record: Record) -> str:
    """What to know of records of recorded driving whose split dealt the parts of cut trips."""
    whole = record.facts["fleet"].get("split_by") == "recording"
    made = record.cell.dataset.startswith("synthetic")
    return "" if whole or made else f"; {SPLIT_BY_PART}"


def _devices(view: View, dataset: str) -> str:
    """On what the main results of a dataset were trained: most of them first, with counts."""
    cells = {identity(c, view.setting.scale): c for c in main_cells(view.setting)}
    records = [r for c in cells.values() if c.dataset == dataset and (r := view.get(c))]
    found = Counter(str(record.facts["device"]) for record in records).most_common()
    if len(found) == 1:
        return found[0][0]
    return " and ".join(f"{device} ({count} main cells)" for device, count in found)


def _any_record(view: View, dataset: str) -> Record | None:
    """A record of the main results on a dataset."""
    cells = (make(dataset, m) for make in (plain, tuned) for m in view.setting.methods)
    return next((r for cell in cells if (r := view.get(cell)) is not None), None)


def _recorded(found: Sequence[Record]) -> str:
    """What is to be known of recorded fleets; empty where none is on the page."""
    if not any(record.cell.dataset in RECORDED for record in found):
        return ""
    return (
        f"- {PURE_EVS}\n"
        "- The paper's windows start every second, so that two neighbours share 59 of their 60 "
        "seconds; ours start as far apart as told above.\n"
    )


def _verdicts(found: Sequence[Verdict]) -> str:
    rows = "\n".join(
        f"| {v.claim} | {v.assertion} | {v.dataset} | **{v.outcome}** | {' '.join(v.sentences)} |"
        for v in found
    )
    return f"""## What holds, and what does not

A difference counts if its paired test over seeds, Holm-corrected over the comparisons of the claim,
is below 5 %. A side of which a seed diverged has lost. Brackets are 95 % intervals.

| Claim | It says | Dataset | Verdict | Numbers |
| --- | --- | --- | --- | --- |
{rows}
"""


def _studies(view: View, folder: Path) -> list[str]:
    parts = []
    state = done(STUDIES.values(), view)
    for name, study in STUDIES.items():
        if name not in {**TABLES, **FIGURES} or not state[name].begun:
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
            if name in FIGURES and picture.name.startswith(FIGURES[name]):
                file = f"figures/reproduction_{picture.name}.svg"
                write_text(folder / file, saved(picture.figure).decode())
                text += [
                    f"![{picture.title}]({file})",
                    "",
                    f"{picture.caption} {picture.facts}",
                    "",
                ]
        text += [f"{remark}\n" for remark in made.remarks]
        for block in made.blocks:
            if any(part in block.table.name for part in TABLES.get(name, ())):
                text += _table(block)
        parts.append("\n".join(text))
    return [*parts, _not_run(view, state)]


def _table(block: Block) -> list[str]:
    """The rows that have run, and the names of those that have not."""
    table, missing, single = only_run(block.table)
    if not table.rows:
        return [f"**{table.title}**: not run{', but for one regime' if single else ''}.", ""]
    lines = [table.markdown()]
    if missing:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    if single:
        lines += [f"Not run but for one regime: {', '.join(single)}.", ""]
    return [*lines, f"*{block.facts}*", ""]


def _not_run(view: View, state: Mapping[str, Done]) -> str:
    """Studies of which nothing has run, and those that only the report shows."""
    scale = view.setting.scale.name
    nothing = [s for name, s in STUDIES.items() if not state[name].begun]
    elsewhere = [
        f"`{name}`" + ("" if own.complete else f" ({own.ran} of {own.cells} cells)")
        for name, own in state.items()
        if own.begun and name not in {**TABLES, **FIGURES}
    ]
    text = []
    if nothing:
        text += [
            "## Not run",
            "",
            f"These studies have not run at this scale; see `fedwatt reproduce NAME --scale "
            f"{scale}`.",
            "",
            *(f"- `{study.name}`: {study.title}" for study in nothing),
            "",
        ]
    if elsewhere:
        text += [f"In the report, but not on this page: {', '.join(elsewhere)}.", ""]
    return "\n".join(text)


def _why(view: View) -> str:
    dataset = view.setting.ved[0]
    rule = Fractional()
    neutral = gamma(2 - rule.alpha) ** (1 / (1 - rule.alpha))
    floor = (rule.p_min * gamma(2 - rule.alpha)) ** (1 / (1 - rule.alpha))
    bound = 1 / (2 * sqrt(2))
    found = [
        "## Why",
        "",
        "**The probe radius.** Along a slice φ(s) on [−ℓ, ℓ] the index is built from TV/A. A "
        "monotone slice has TV = A, so that T = 1/(2ℓ) for every direction and I_k is 0 but for "
        "the guard ε_A, however steep the loss is. A slice φ ≈ φ(0) + a·s + ½·b·s² turns inside "
        "only if |a| < ℓ·|b|; along a random unit direction in D dimensions a is about ‖g‖/√D and "
        "b about tr(H)/D, so a share 2Φ(κ) − 1 of slices with κ = ℓ·tr(H)/(‖g‖·√D) is not "
        "monotone. At ℓ = 0.01 that is next to none. Slices with one turn cannot exceed "
        f"I = 1/(2√2) = {bound:.3f}; the paper lists values up to 1.00.",
        _roughness_numbers(view, dataset),
        "",
        "**The preconditioner.** p = (|w_h − w_{h−1}| + δ)^(1−α) / Γ(2−α) reaches 1 only for a "
        f"displacement of {neutral:.3f} at α = {rule.alpha:g}, and the clip p_min = {rule.p_min:g} "
        f"holds below {floor:.2g}: no coordinate of such a network moves that far in a step, so FO "
        "is a coordinate-wise reduction of the rate. Smaller displacements shrink steps further; "
        "they do not amplify them, and the memory is one step long.",
        _step_numbers(view, dataset),
        "",
        "**The spectral ratio.** κ = ‖W‖₂/‖W‖_F of the final layer of a network with one output is "
        "1 for all weights, because a matrix of one row has one singular value. The gate is then "
        "the constant factor 1/(1 + β_κ) on every step after the first, and where p already sits "
        "on p_min it changes nothing at all. Here κ is taken of the last hidden matrix.",
    ]
    return "\n".join(found)


def _roughness_numbers(view: View, dataset: str) -> str:
    parts = []
    record = view.get(carrier(dataset, "fedavg"))
    if record is not None:
        flat = float((record.vehicles["roughness"] < FLAT).mean())
        at = min(view.setting.scale.at(100) + 1, view.setting.scale.rounds)
        one = coupling_values(record, (at, at))["flat"]
        parts.append(
            f"Measured on {dataset}: {100 * np.mean(list(one.values())):.0f} % of vehicles have "
            f"I_k below {FLAT:g} at t = 100, and {100 * flat:.0f} % of all values over all rounds "
            "are that small."
        )
    rough = view.get(plain(dataset, "ri-fedavg"))
    if rough is not None:
        parts.append(f"RI-FedAvg's mean pull on {dataset} is {mean_pull(rough):.5f} (λ = 0.1).")
    return " ".join(parts)


def _step_numbers(view: View, dataset: str) -> str:
    fo = view.get(plain(dataset, "fo-fedavg"))
    if fo is None or not fo.facts.get("step_scale"):
        return ""
    scale = fo.facts["step_scale"]
    return (
        f"Measured on {dataset}: steps after the first are {scale['length']:.3f} times as long as "
        f"plain ones, and the mean scale of a coordinate is {scale['coordinate']:.3f}."
    )


def _practice(view: View) -> str:
    lines = ["## What to use in practice", ""]
    for dataset in view.setting.ved:
        how, records = _compared(view, dataset)
        finals = {m: level(r) for m, r in records.items() if not r.diverged}
        if not finals:
            continue
        best = min(finals, key=lambda method: finals[method])
        sentence = [
            f"On {dataset}, {how}, the lowest error is {name_of(best)}'s with "
            f"{shown(finals[best], 2)} Wh"
        ]
        if "fedavg" in finals and best != "fedavg":
            base = finals["fedavg"]
            sentence.append(
                f", {100 * (1 - finals[best] / base):.1f} % below FedAvg's {shown(base, 2)} Wh"
            )
        sentence.append(".")
        sentence += [f" {divergence(name_of(m), r)}." for m, r in records.items() if r.diverged]
        controls = control_cells_of(dataset)
        alone, one = (
            view.get(controls[name]) for name in ("every vehicle alone", "all data in one place")
        )
        for record, word in ((alone, "every vehicle alone"), (one, "all data in one place")):
            if record is not None and not record.diverged:
                sentence.append(f" Training {word} ends at {shown(level(record), 2)} Wh.")
        gate = view.get(variant(dataset, {"beta_kappa": 0.5}))
        own = view.get(plain(dataset, "fo-ri-fedavg"))
        if gate is not None and own is not None and not (gate.diverged or own.diverged):
            moved = level(gate) - level(own)
            sentence.append(f" The spectral gate moves FO-RI-FedAvg by {moved:+.2f} Wh.")
        lines += ["- " + "".join(sentence)]
    lines += [
        "- Tune the rate of whatever you use before you choose among methods: compare at each "
        "method's own best rate (`fedwatt tune`), never at one rate for all.",
        "- Look beyond the optimiser as well, at label scaling in each vehicle, features of the "
        "road and a model that each vehicle makes its own: [Accuracy](accuracy.md) has their "
        "numbers, on splits of their own.",
        "- The paper's printed numbers contradict each other in places; the files in "
        "`reproduction/paper` say where. Its table of 50 to 200 clients is estimated.",
    ]
    return "\n".join(lines)


def _compared(view: View, dataset: str) -> tuple[str, dict[str, Record]]:
    """All methods tuned, or else all at the paper's settings, and which of the two in words.

    Where neither is complete: that of which more has run.
    """
    found = []
    for how, make in (("tuned with equal budgets", tuned), ("at the paper's settings", plain)):
        if make is tuned and view.setting.scale.trials < 2:
            continue
        got = {m: r for m in view.setting.methods if (r := view.get(make(dataset, m))) is not None}
        some = f", of {len(got)} of {len(view.setting.methods)} methods"
        found.append((how + (some if len(got) < len(view.setting.methods) else ""), got))
    return max(found, key=lambda one: len(one[1]))


def _again() -> str:
    return """## Do it again

    fedwatt reproduce --list
    fedwatt reproduce all --scale smoke
    fedwatt reproduce main controls --scale paper --data PATH/TO/VED --plan
    fedwatt reproduce main controls --scale paper --data PATH/TO/VED --records results/reproduction

Cells are kept in `runs/reproduction` under the hash of what determines them, so the same command
continues where it stopped. On a CPU the records of a cell are the same bit for bit each time; its
times are not. `report.html` has every table and figure, with switches for the methods.
"""


def main() -> None:
    """Write the page and its figures."""
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=root / "results" / "reproduction")
    parser.add_argument("--out", type=Path, default=root / "docs" / "reproduction.md")
    arguments = parser.parse_args()
    scale = scale_of(scale_of_records(arguments.records))
    with TemporaryDirectory() as scratch:
        lab = Lab(scale, Path(scratch), records=arguments.records)
        print(write_markdown(lab, arguments.out))


if __name__ == "__main__":
    main()
