"""docs/which-method.md from the records: its blocks, and whether they are those on the page."""

from collections import Counter
from collections.abc import Sequence
from math import inf, isnan
from pathlib import Path
from typing import Final

from benchmarks.marked import filled
from comparison.entries import ENTRIES
from comparison.fleets import ARENAS
from comparison.judge import (
    BASELINE,
    Column,
    Records,
    advice,
    beats_all_published,
    deserve_to_be_default,
    pooled,
    unplayed,
    winners,
)
from comparison.judge import LEVEL as SIGNIFICANT
from comparison.tuned import listed, rates, untuned
from fedwatt.report.statistics import Estimate
from reproduction.paired import paired

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "which-method.md"
PLAYED: Final = [arena.name for arena in ARENAS.values() if not arena.impossible]
LEVEL: Final = [name for name in PLAYED if name.endswith("level")]
HILLS: Final = [name for name in PLAYED if name.endswith("hills")]
SKEWED: Final = [name for name in PLAYED if name.startswith(("moderate", "severe"))]
MINUS: Final = "\N{MINUS SIGN}"

SITUATIONS: Final = (
    ("share one model and no hills", LEVEL, "global", "rounds"),
    ("share one model and learn hills", HILLS, "global", "rounds"),
    ("fine-tune it, without hills", LEVEL, "personal", "rounds"),
    ("fine-tune it, with hills", HILLS, "personal", "rounds"),
    ("differ strongly in how they drive, and share one model", SKEWED, "global", "rounds"),
    ("pay for every byte, and share one model", PLAYED, "global", "bytes"),
    ("pay for every byte, and fine-tune", PLAYED, "personal", "bytes"),
    ("have slow computers, and share one model", PLAYED, "global", "compute"),
    ("have slow computers, and fine-tune", PLAYED, "personal", "compute"),
    ("are joined by new ones that fine-tune", PLAYED, "newcomers personal", "rounds"),
    ("share one model and often do not finish their work", PLAYED, "stragglers", "rounds"),
)  # "If your vehicles ...", the arenas that speak to it, what is judged there, what is held equal


COLUMNS: Final = {
    f"{words}, {kind}": [Column(name, view) for name in arenas]
    for words, view in (("one model", "global"), ("fine-tuned", "personal"))
    for kind, arenas in (("level", LEVEL), ("hills", HILLS))
}
"""What entries are compared in over several fleets."""


def write_page(records: Records, page: Path = PAGE) -> str:
    """The page as the records have it."""
    return filled(page.read_text(encoding="utf-8"), blocks(records))


def blocks(records: Records) -> dict[str, str]:
    """Markdown by the name of its place on the page."""
    return {
        "tournament setting": setting(records),
        "tournament answer": answer(records),
        "tournament guide": guide(records),
        "tournament parts": parts(records),
        "tournament summary": summary(records),
        "tournament default": default(records),
        "tournament rates": rates(records),
        "tournament untuned": untuned(records),
        "tournament ours": ours(records),
        "tournament global": matrix("global", "rounds", records),
        "tournament personal": matrix("personal", "rounds", records),
        "tournament global bytes": matrix("global", "bytes", records),
        "tournament personal bytes": matrix("personal", "bytes", records),
        "tournament global compute": matrix("global", "compute", records),
        "tournament personal compute": matrix("personal", "compute", records),
        "tournament newcomers": matrix("newcomers", "rounds", records),
        "tournament newcomers personal": matrix("newcomers personal", "rounds", records),
        "tournament stragglers": stragglers(records),
        "tournament not run": not_run(records),
    }


def setting(records: Records) -> str:
    """How long, how often, on what."""
    if not records:
        return "Nothing has been played yet."
    own = next(iter(records.values())).content
    plan, devices = own["plan"], Counter(r.content["device"] for r in records.values())
    hours = sum(r.content["seconds"] for r in records.values()) / 3600
    where = listed([f"{device} ({count})" for device, count in devices.most_common()])
    lines = [
        f"{len(records)} matches ({hours:.1f} hours of processes; results from {where}): "
        f"{plan['trials']} trials of each entry, the defaults among them, with seeds "
        f"{listed(plan['tuning_seeds'])}; results with seeds {listed(plan['seeds'])}. "
        f"Trials and results have {plan['rounds']} rounds of {plan['steps']} steps at the rate "
        "η₀/√(t+1).",
        "",
        "| fleet | vehicles | newcomers | participation |",
        "|---|---|---|---|",
    ]
    for arena in (ARENAS[name] for name in LEVEL):
        lines.append(
            f"| {arena.fleet} | {arena.about} | {arena.newcomers} | {arena.participation:g} |"
        )
    return "\n".join(lines)


def answer(records: Records) -> str:
    """Whether anything beats FedAvg with fine-tuning and hills."""
    columns = [Column(name, "personal") for name in HILLS]
    found = {column.arena: column.standings(records) for column in columns}
    found = {arena: own for arena, own in found.items() if own}
    if not found:
        return "Not known: no match with hills has been played."
    lines, wins = [], dict.fromkeys(ENTRIES, 0)
    for arena, own in found.items():
        better = sorted((s for s in own.values() if s.better), key=lambda s: s.mean)
        for one in better:
            wins[one.entry] += 1
        who = ", ".join(f"{s.entry} ({_signed(s.beside.difference)})" for s in better[:5])
        more = f" and {len(better) - 5} more" if len(better) > 5 else ""
        lines.append(
            f"- {ARENAS[arena].fleet}: FedAvg {own[BASELINE].mean:.2f} Wh; "
            + (f"better: {who}{more}" if better else "no method is significantly better")
            + _given_up(Column(arena, "personal"), records)
        )
    most = max(wins.values())
    names = listed([name for name, count in wins.items() if count == most and most])
    if not most:
        head = f"**No, on none of the {len(found)} fleets with hills.**"
    elif most == len(found):
        head = f"**Yes: {names}, on all {len(found)} fleets with hills.**"
    else:
        head = (
            f"**Not everywhere: {names} on {most} of the {len(found)} fleets with hills, no method "
            "on more.**"
        )
    return "\n".join([head, "", *lines, "", _together(columns, records)])


def _given_up(column: Column, records: Records) -> str:
    """Who would be better than FedAvg with the rate that it had to give up."""
    better = [one for one in column.with_rates_given_up(records).values() if one.better]
    who = ", ".join(f"{one.entry} ({_signed(one.beside.difference)})" for one in better)
    return f"; better with the rate that it gave up (below): {who}" if who else ""


def _together(columns: Sequence[Column], records: Records) -> str:
    """Who is better than FedAvg over all fleets at once."""
    over_all = pooled(columns, records)
    better = {
        entry: beside
        for entry, (beside, p) in over_all.items()
        if p < SIGNIFICANT and beside.difference.mean < 0
    }
    listed = sorted(better, key=lambda entry: better[entry].difference.mean)
    if not listed:
        return (
            "Over all of them together, by the mean relative difference, no method is "
            "significantly better."
        )
    who = ", ".join(f"`{entry}` ({_signed(better[entry].difference)} %)" for entry in listed)
    return f"Over all of them together, by the mean relative difference, better: {who}."


def summary(records: Records) -> str:
    """Mean differences from FedAvg over fleets, in percent."""
    found = [pooled(columns, records) for columns in COLUMNS.values()]
    lines = [f"| entry | {' | '.join(COLUMNS)} |", "|---|---|---|---|---|"]
    known = [entry for entry in ENTRIES if any(entry in own for own in found)]
    last = found[-1]
    for entry in sorted(known, key=lambda e: last[e][0].difference.mean if e in last else inf):
        cells = []
        for own in found:
            beside, p = own.get(entry, (None, 1.0))
            text = "–" if beside is None else f"{_signed(beside.difference)} %"
            cells.append(f"**{text}**" if p < SIGNIFICANT else text)
        lines.append(f"| `{entry}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def default(records: Records) -> str:
    """Why `fedwatt run` trains what it trains, by how much anything else would change."""
    gains = [
        (-beside.difference.mean, entry, name)
        for name, columns in COLUMNS.items()
        for entry, (beside, p) in pooled(columns, records).items()
        if p < SIGNIFICANT
    ]
    gain, entry, name = max(gains, default=(0.0, "", ""))
    hills = []
    for arena in HILLS:
        with_hills = Column(arena, "global").standings(records).get(BASELINE)
        level = Column(arena.replace("hills", "level"), "global").standings(records).get(BASELINE)
        if with_hills and level:
            hills.append(100 * (1 - with_hills.mean / level.mean))
    if not hills:
        return "`fedwatt run` without a configuration compares FedAvg with FO-RI-FedAvg."
    best = f"{gain:.1f} % (`{entry}`: {name})" if gain > 0 else "nothing"
    deserving = deserve_to_be_default(COLUMNS, records)
    most = max(
        (
            (count / len(columns), count, -place, one, len(columns), words)
            for words, columns in COLUMNS.items()
            for place, (one, count) in enumerate(winners(columns, records).items())
        ),
        default=(0.0, 0, 0, "nobody", 0, ""),
    )
    verdict = (
        f"That is the case for {listed([f'`{one}`' for one in deserving])}, which it trains, too."
        if deserving
        else f"Nobody is; the most is {most[1]} of {most[4]} (`{most[3]}`: {most[5]})."
        if most[1]
        else "Nobody is, on any."
    )
    also = deserve_to_be_default(COLUMNS, records, given_up=True)
    if others := [f"`{one}`" for one in also if one not in deserving]:
        verdict += f" With the rates that were given up (below) {listed(others)} would be."
    return (
        "`fedwatt run` without a configuration compares FedAvg with FO-RI-FedAvg, the paper's "
        "method. A further method belongs there if it is better than FedAvg by more than the "
        f"noise on at least half of the fleets of a column. {verdict} Over all fleets of a column "
        f"the most that any entry gains by more than the noise is {best}, while hills take "
        f"{min(hills):.0f} to {max(hills):.0f} % off FedAvg's own error."
    )


def guide(records: Records) -> str:
    """If your vehicles ..., use ..."""
    lines, left_out = ["| if your vehicles … | use | how sure |", "|---|---|---|"], set[str]()
    for situation, arenas, view, basis in SITUATIONS:
        found = advice([Column(name, view, basis) for name in arenas], records)
        if found is None:
            lines.append(f"| {situation} | – | not played |")
            continue
        by = f"{_signed(found.beside.difference)} %, p = {found.p:.2g}"
        if found.entry != BASELINE:
            sure = f"{by} over {found.arenas} arenas; significant by itself on {found.won}"
        else:
            sure = f"no method is significantly better over {found.arenas} arenas"
            sure += f"; lowest: `{found.lowest}` ({by})" if found.lowest != BASELINE else ""
        lines.append(f"| {situation} | `{found.entry}` | {sure} |")
        left_out.update(found.incomplete)
    if left_out:
        names = listed([f"`{entry}`" for entry in ENTRIES if entry in left_out])
        lines += ["", f"Not judged where they have no result on some of the arenas: {names}."]
    return "\n".join(lines)


def parts(records: Records) -> str:
    """What hills, fine-tuning and the choice of a method each change."""
    lines = [
        "| fleet | FedAvg | + fine-tuning | + hills | + both | best method, both |",
        "|---|---|---|---|---|---|",
    ]
    for fleet in dict.fromkeys(arena.fleet for arena in ARENAS.values()):
        cells = []
        for kind, view in (
            ("level", "global"), ("level", "personal"), ("hills", "global"), ("hills", "personal"),
        ):  # fmt: skip
            own = Column(f"{fleet} {kind}", view).standings(records).get(BASELINE)
            cells.append(f"{own.mean:.2f}" if own else "–")
        hilly = Column(f"{fleet} hills", "personal")
        last = hilly if hilly.standings(records) else Column(f"{fleet} level", "personal")
        best = last.standings(records).get(last.best(records))
        named = f"{best.mean:.2f} `{best.entry}`" if best else "–"
        where = "" if last is hilly or not best else " (no hills)"
        lines.append(f"| {fleet} | {' | '.join(cells)} | {named}{where} |")
    return "\n".join(lines)


def ours(records: Records) -> str:
    """Fleets on which entries that nobody published beat all that somebody did."""
    lines = [f"| entry | {' | '.join(COLUMNS)} |", "|---|---|---|---|---|"]
    most = 0
    for entry in (name for name, own in ENTRIES.items() if own.ours):
        won = [beats_all_published(entry, columns, records) for columns in COLUMNS.values()]
        most = max(most, *map(len, won))
        cells = [
            _won(own, sum(entry in column.errors(records) for column in columns), len(columns))
            for own, columns in zip(won, COLUMNS.values(), strict=True)
        ]
        lines.append(f"| `{entry}` | {' | '.join(cells)} |")
    aim = "is met" if most >= 4 else f"is not met: the most is {most}"
    return "\n".join([*lines, "", f"The aim, four of six fleets in one of the columns, {aim}."])


def _won(arenas: Sequence[str], played: int, of: int) -> str:
    """On which fleets, and on how many there is a result where that is not all of them."""
    if not played:
        return "not played"
    names = ", ".join(ARENAS[name].fleet for name in arenas) or "none"
    return names if played == of else f"{names} ({played} of {of} played)"


def matrix(view: str, basis: str, records: Records) -> str:
    """Entries by arenas: FedAvg's error, and each one's difference from it."""
    columns = [Column(name, view, basis) for name in PLAYED]
    found = [column.standings(records) for column in columns]
    lines = [
        "| | " + " | ".join(name.replace(" ", "<br>") for name in PLAYED) + " |",
        "|---|" + "---|" * len(PLAYED),
    ]
    base = [f"{own[BASELINE].mean:.2f}" if own else "–" for own in found]
    lines.append(f"| **fedavg** | {' | '.join(base)} |")
    for entry in (name for name in ENTRIES if name != BASELINE):
        if basis != "rounds" and not _costs_more(entry, basis, records):
            continue
        if not any(entry in own for own in found):
            continue
        cells = []
        for own in found:
            one = own.get(entry)
            text = "–" if one is None else _signed(one.beside.difference)
            bold = one is not None and (one.better or one.worse)
            cells.append(f"**{text}**" if bold else text)
        lines.append(f"| {entry} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stragglers(records: Records) -> str:
    """What slow vehicles change in the error of the models driven with, entry by entry."""
    lines = [
        "| | " + " | ".join(name.replace(" ", "<br>") for name in PLAYED) + " |",
        "|---|" + "---|" * len(PLAYED),
    ]
    for entry in ENTRIES:
        cells = []
        for arena in PLAYED:
            record = records.get((arena, entry))
            slow = record.driven(stragglers=True) if record else {}
            if record is None or not slow:
                cells.append("–")
                continue
            change = paired(slow, record.driven(stragglers=False)).difference
            text = _signed(change)
            cells.append(f"**{text}**" if change.above_noise else text)
        lines.append(f"| {entry} | {' | '.join(cells)} |")
    return "\n".join(lines)


def not_run(records: Records) -> str:
    """Every match without a result, with its reason."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for name, why in unplayed(records).items():
        arena, _, entry = name.partition(": ")
        by_reason.setdefault(why, {}).setdefault(entry, []).append(arena)
    lines = []
    for why, entries in by_reason.items():
        names = [
            f"`{entry}` ({', '.join(arenas)})" if entry else ", ".join(arenas)
            for entry, arenas in entries.items()
        ]
        lines.append(f"- {why}: {', '.join(names)}")
    return "\n".join(lines) or "All matches were played."


def _costs_more(entry: str, basis: str, records: Records) -> bool:
    return any(
        own.content["matched"][basis] < own.content["matched"]["rounds"]
        for (_, name), own in records.items()
        if name == entry and "matched" in own.content
    )


def _signed(found: Estimate) -> str:
    """A difference with half its 95 % interval, as in "−1.10 ± 0.30"."""
    sign = MINUS if found.mean < 0 else "+"
    half = "" if isnan(found.low) else f" ± {(found.high - found.low) / 2:.2f}"
    return f"{sign}{abs(found.mean):.2f}{half}"
