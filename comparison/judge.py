"""From records to who is better than whom, and by how much: pure functions of the records.

At equal seeds two entries start from the same model, meet the same participants and draw the same
batches, so they are compared seed by seed. Significance is Student's paired t-test with Holm's
correction over all entries of a column, or of a row of the guide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean

from comparison.entries import ALONE, ENTRIES, TWINS
from comparison.fleets import ARENAS
from comparison.records import Record
from reproduction.paired import Paired, holm, paired

Records = Mapping[tuple[str, str], Record]
LEVEL = 0.05
BASELINE = "fedavg"


@dataclass(frozen=True)
class Standing:
    """An entry in a column: its error, and how that differs from FedAvg's at equal seeds."""

    entry: str
    mean: float
    """Wh a window."""
    beside: Paired
    p: float
    """Corrected for all entries of the column."""

    @property
    def better(self) -> bool:
        """Whether it is better than FedAvg by more than the noise of seeds."""
        return self.entry != BASELINE and self.p < LEVEL and self.beside.difference.mean < 0

    @property
    def worse(self) -> bool:
        """Whether it is worse than FedAvg by more than that."""
        return self.entry != BASELINE and self.p < LEVEL and self.beside.difference.mean > 0


@dataclass(frozen=True)
class Column:
    """All entries on one arena, in one view, at equal rounds, bytes or compute."""

    arena: str
    view: str
    basis: str = "rounds"

    def errors(self, records: Records) -> dict[str, dict[int, float]]:
        """Entry → seed → error, of those that have one in this view."""
        found = {}
        for entry in ENTRIES:
            record = records.get((self.arena, entry))
            one_model = self.view in ("global", "newcomers", "stragglers")
            if record is None or (one_model and ENTRIES[entry].no_global_model):
                continue
            if entry == ALONE and self.view.startswith("newcomers"):
                continue  # whoever shares nothing has nothing for newcomers
            own = record.errors(self.view, self.basis)
            if own:
                found[entry] = own
        return found

    def standings(self, records: Records) -> dict[str, Standing]:
        """Every entry beside FedAvg, which always has all its rounds."""
        return _standings(self.errors(records))

    def with_rates_given_up(self, records: Records) -> dict[str, Standing]:
        """Entries as they would stand with the rate that they gave up, each by itself.

        FedAvg has its safer rate all the same.
        """
        found, kept = self.errors(records), {}
        for entry in found:
            own = records[self.arena, entry].errors_given_up(self.view)
            if own and entry not in TWINS:
                kept[entry] = _standings({**found, entry: own})[entry]
        return kept

    def best(self, records: Records, among: Sequence[str] | None = None) -> str:
        """The entry with the lowest mean error; empty where nobody has one."""
        means = {e: fmean(own.values()) for e, own in self.errors(records).items()}
        there = [entry for entry in means if among is None or entry in among]
        return min(there, key=lambda entry: means[entry], default="")


def _standings(found: Mapping[str, Mapping[int, float]]) -> dict[str, Standing]:
    base = found.get(BASELINE)
    if base is None:
        return {}
    beside = {entry: paired(own, base) for entry, own in found.items()}
    others = [entry for entry in found if entry != BASELINE]
    corrected = dict(zip(others, holm([beside[e].p for e in others]), strict=True))
    return {
        entry: Standing(entry, fmean(own.values()), beside[entry], corrected.get(entry, nan))
        for entry, own in found.items()
    }


def pooled(columns: Sequence[Column], records: Records) -> dict[str, tuple[Paired, float]]:
    """Entry → mean difference from FedAvg over all columns, in percent, and its corrected p.

    Of those that were played in every column: seed by seed, the mean of the relative differences.
    """
    found = [column.errors(records) for column in columns]
    if not found or not all(BASELINE in own for own in found):
        return {}
    beside = {}
    for entry in ENTRIES:
        if entry == BASELINE or not all(entry in own for own in found):
            continue
        seeds = set.intersection(*(set(own[entry]) & set(own[BASELINE]) for own in found))
        percent = {
            seed: fmean(100 * (own[entry][seed] / own[BASELINE][seed] - 1) for own in found)
            for seed in sorted(seeds)
        }
        beside[entry] = paired(percent, dict.fromkeys(percent, 0.0))
    corrected = holm([one.p for one in beside.values()])
    return {entry: (beside[entry], p) for entry, p in zip(beside, corrected, strict=True)}


@dataclass(frozen=True)
class Advice:
    """The entry with the lowest mean over some arenas, and whether it is better than FedAvg."""

    lowest: str
    """Of those with a result on every arena; FedAvg where nobody else has one."""
    beside: Paired
    """Its mean difference from FedAvg, in percent."""
    p: float
    """Corrected for all entries."""
    won: int
    """Arenas on which it is significantly better than FedAvg by itself."""
    arenas: int
    incomplete: tuple[str, ...]
    """Entries that are left out because they have no result on some of these arenas."""

    @property
    def entry(self) -> str:
        """What to use: FedAvg, unless the other one is significantly better."""
        better = self.p < LEVEL and self.beside.difference.mean < 0
        return self.lowest if better else BASELINE


def advice(columns: Sequence[Column], records: Records) -> Advice | None:
    """What to use where all `columns` matter; None where nothing was played.

    Chosen among the entries with a result in every column: whoever was not played on an arena has
    neither won nor lost there. The lowest of those that are significantly better goes before the
    lowest of all, which may be only the noisiest.
    """
    played = [column for column in columns if column.standings(records)]
    if not played:
        return None
    nothing = (paired({1: 0.0}, {1: 0.0}), 1.0)
    over = {BASELINE: nothing, **pooled(played, records)}
    better = [e for e, (beside, p) in over.items() if p < LEVEL and beside.difference.mean < 0]
    lowest = min(better or over, key=lambda entry: over[entry][0].difference.mean)
    some = {entry for column in played for entry in column.errors(records) if entry not in over}
    left_out = tuple(entry for entry in ENTRIES if entry in some)
    won = winners(played, records).get(lowest, 0)
    return Advice(lowest, *over[lowest], won, len(played), left_out)


def winners(
    columns: Sequence[Column], records: Records, *, given_up: bool = False
) -> dict[str, int]:
    """Entries that are better than FedAvg by more than the noise → on how many of the arenas.

    `given_up`: as they would be with the rates that they gave up.
    """
    found = [
        column.standings(records) | (column.with_rates_given_up(records) if given_up else {})
        for column in columns
    ]
    times = {entry: sum(entry in own and own[entry].better for own in found) for entry in ENTRIES}
    return {entry: count for entry, count in times.items() if count}


def deserve_to_be_default(
    situations: Mapping[str, Sequence[Column]], records: Records, *, given_up: bool = False
) -> tuple[str, ...]:
    """Entries better than FedAvg, by more than the noise, on at least half of a row's arenas."""
    return tuple(
        dict.fromkeys(
            entry
            for columns in situations.values()
            for entry, count in winners(columns, records, given_up=given_up).items()
            if 2 * count >= len(columns)
        )
    )


def beats_all_published(entry: str, columns: Sequence[Column], records: Records) -> list[str]:
    """Arenas on which an entry is better than every published one by more than the noise."""
    published = [name for name, own in ENTRIES.items() if not own.ours]
    won = []
    for column in columns:
        found, rival = column.errors(records), column.best(records, published)
        if entry in found and rival and paired(found[entry], found[rival]).difference.high < 0:
            won.append(column.arena)
    return won


def _not_begun(arena: str, records: Records) -> str:
    """That nobody has played a match, and how long the others on its arena took."""
    took = [own.content["seconds"] / 60 for (name, _), own in records.items() if name == arena]
    if not took:
        return "not begun; no match of this arena has been played"
    return (
        f"not begun; the {len(took)} others there took {fmean(took):.1f} minutes of a process each"
    )


def unplayed(records: Records) -> dict[str, str]:
    """What has no result → why."""
    reasons = {arena.name: arena.impossible for arena in ARENAS.values() if arena.impossible}
    for arena in (arena for arena in ARENAS.values() if not arena.impossible):
        for entry in ENTRIES:
            record = records.get((arena.name, entry))
            if record is None:
                reasons[f"{arena.name}: {entry}"] = _not_begun(arena.name, records)
            elif "matched" not in record.content:
                reasons[f"{arena.name}: {entry}"] = "all of its trials diverged"
            elif record.content["diverged"]:
                seeds = ", ".join(map(str, record.content["diverged"]))
                one = "seed" if len(record.content["diverged"]) == 1 else "seeds"
                reasons[f"{arena.name}: {entry}"] = f"diverged for {one} {seeds}"
    return reasons
