"""The head of docs/reproduction.md: datasets, protocol, departures from it, and what has run."""

from collections import Counter
from collections.abc import Sequence

from fedwatt.report.style import name_of
from reproduction.catalogue import STUDIES
from reproduction.cell import Cell, data_settings
from reproduction.claims import Verdict
from reproduction.data import PURE_EVS, QUALIFY, RECORDED
from reproduction.judges import NOT_SUPPORTED, NOT_TESTABLE
from reproduction.main_results import main_cells, plain
from reproduction.objection import Objection
from reproduction.order import identity
from reproduction.partial import done
from reproduction.record import Record
from reproduction.settle import RATE
from reproduction.study import View


def head(view: View, count: int, found: Sequence[Verdict], rows: Sequence[Objection]) -> str:
    """Title, datasets, protocol and what of it has run; `count` is the number of records."""
    scale = view.setting.scale
    warning = (
        '!!! warning "Smoke scale"\n'
        f"    These records are {scale.rounds} rounds with {len(scale.seeds)} seeds on little "
        "data. They show that every study runs; nothing below is a finding.\n\n"
        if scale.name == "smoke"
        else ""
    )
    datasets = (*view.setting.ved, *view.setting.eved)
    records = [r for d in datasets if (r := _any_record(view, d))]
    lines = []
    for record in records:
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
{_progress(view, found, rows)}- T = {scale.rounds} rounds, seeds {_listed(scale.seeds)}, \
C = 0.3, E = 1, B = 64, η₀ = 0.05 with 1/√(t+1) and global probe rounds, as the paper has them; \
{count} cells in all.
{_recorded(records)}{_reductions(view)}"""


def _progress(view: View, found: Sequence[Verdict], rows: Sequence[Objection]) -> str:
    """How much has run, where that is not all, and which verdicts have fewer comparisons."""
    state = done(STUDIES.values(), view).values()
    complete, begun = sum(own.complete for own in state), sum(own.begun for own in state)
    if complete == len(state):
        return ""
    text = (
        f"- Of {len(state)} studies {complete} have run in full, {begun - complete} in part and "
        f"{len(state) - begun} not at all. What has not run is named where it would stand, and "
        "nothing is put in its place. This page at commit 5e4909f of the repository shows more "
        "studies under an older protocol (six trials of 60 rounds, probes by age, another split of "
        "the trips).\n"
    )
    short = [
        f"{v.claim} on {v.dataset}"
        for v in found
        if v.outcome == NOT_SUPPORTED and any(s.startswith("Not run") for s in v.sentences)
    ]
    if short:
        text += (
            f"- Comparisons are missing from {_and(short)}. These claims fail without them: they "
            "must hold in every comparison, and one that ran is against them.\n"
        )
    waiting = [f"{v.claim} on {v.dataset}" for v in found if v.outcome == NOT_TESTABLE]
    waiting += [f'"{o.objection}"' for o in rows if "ot run" in o.result + o.verdict]
    return text + (f"- Not settled, or in part only: {_and(waiting)}.\n" if waiting else "")


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
