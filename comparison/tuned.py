"""What tuning chose, and where its rules were not carried out to the end."""

from collections.abc import Sequence
from math import isfinite

from comparison.entries import ENTRIES, TWINS
from comparison.fleets import ARENAS
from comparison.judge import Records
from comparison.records import edge


def rates(records: Records) -> str:
    """Rates that tuning chose, and how often the highest that was tried."""
    lines = [
        "| entry | rates, lowest to highest | beyond the range | given up | highest tried |",
        "|---|---|---|---|---|",
    ]
    for entry in ENTRIES:
        own = [r.content for (_, name), r in records.items() if name == entry]
        own = [content for content in own if "settings" in content]
        chosen = [content["settings"]["rate"] for content in own]
        if chosen:
            tried = [[trial["settings"]["rate"] for trial in c["trials"]] for c in own]
            ends = sum(r >= max(all_) for r, all_ in zip(chosen, tried, strict=True))
            range_ = [max(all_[: c["plan"]["trials"]]) for c, all_ in zip(own, tried, strict=True)]
            beyond = sum(r > top for r, top in zip(chosen, range_, strict=True))
            lost = sum("given_up" in content for content in own)
            span = f"{min(chosen):.3g} to {max(chosen):.3g}"
            lines.append(f"| `{entry}` | {span} | {beyond} | {lost} | {ends} of {len(chosen)} |")
    return "\n".join(lines)


def untuned(records: Records) -> str:
    """Rates given up for all entries of an arena, and matches that the rules have yet to settle."""
    lines = [_given_up(arena, records) for arena in ARENAS if isfinite(edge(arena, records))]
    ends: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    there: dict[str, list[str]] = {}
    for arena, entry in ((arena, entry) for entry in ENTRIES for arena in ARENAS):
        own = records.get((arena, entry))
        if own is None:
            continue
        limit = edge(arena, records)
        if own.unfinished(limit):
            ends.setdefault(entry, []).append(arena)
        if own.beyond and own.content["diverged"]:
            lost.setdefault(entry, []).append(arena)
        elif own.beyond and own.content["settings"]["rate"] >= limit:
            there.setdefault(entry, []).append(arena)
    for found, words in (
        (ends, "The highest rate tried is the best, and no higher ones were tried, for"),
        (
            lost,
            "Diverged beyond the range, and not trained again within it, and so without result:",
        ),
        (there, "Still with a rate that was given up, because nobody has trained them again:"),
    ):
        names = [f"`{entry}` ({', '.join(arenas)})" for entry, arenas in found.items()]
        lines += [f"- {words} {listed(names)}."] if names else []
    return "\n".join(lines) or "All matches were tuned to the end."


def _given_up(arena: str, records: Records) -> str:
    """From which rate on, and who had to leave it without having diverged."""
    moved = [
        f"`{entry}`"
        for entry in ENTRIES
        if (own := records.get((arena, entry))) and "edge" in own.content.get("given_up", {})
    ]
    return (
        f"- On {arena}, rates from {edge(arena, records):.3g} on were given up for all entries, "
        f"because {listed([f'`{twin}`' for twin in TWINS], 'or')} diverged there; that moved "
        f"{listed(moved)}."
    )


def listed(things: Sequence[object], word: str = "and") -> str:
    """As in "1, 2 and 3"."""
    *most, last = map(str, things) if things else ("nobody",)
    return f"{', '.join(most)} {word} {last}" if most else last
