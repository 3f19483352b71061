"""From records to who is better than whom, and by how much: pure functions of the records.

At equal seeds two entries start from the same model, meet the same participants and draw the same
batches, so they are compared seed by seed. Beside FedAvg, significance is Student's paired t-test
with Holm's correction over all entries of a column; "not clearly worse than the best" asks that the
95 % interval of the paired difference reaches zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean

from reproduction.paired import Paired, holm, paired
from tournament.entries import ALONE, ENTRIES
from tournament.fleets import ARENAS
from tournament.records import Record

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
        found = self.errors(records)
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

    def best(self, records: Records, among: Sequence[str] | None = None) -> str:
        """The entry with the lowest mean error; empty where nobody has one."""
        means = {e: fmean(own.values()) for e, own in self.errors(records).items()}
        there = [entry for entry in means if among is None or entry in among]
        return min(there, key=lambda entry: means[entry], default="")

    def tied(self, records: Records) -> set[str]:
        """The best entry, and all that are not clearly worse."""
        found, best = self.errors(records), self.best(records)
        return {
            entry
            for entry, own in found.items()
            if entry == best or not paired(own, found[best]).difference.low > 0
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
    """The cheapest entry that is most often not clearly worse than the best."""

    entry: str
    tied: int
    """Arenas on which it is not clearly worse than the best."""
    baseline: int
    """The same of FedAvg."""
    arenas: int
    incomplete: tuple[str, ...]
    """Entries that are left out because they have no result on some of these arenas."""


def advice(columns: Sequence[Column], records: Records) -> Advice | None:
    """What to use where all `columns` matter; None where nothing was played.

    Chosen among the entries with a result in every column: whoever was not played on an arena has
    neither won nor lost there.
    """
    played = [column for column in columns if column.standings(records)]
    if not played:
        return None
    found = [column.errors(records) for column in played]
    judged = [entry for entry in ENTRIES if all(entry in own for own in found)]
    tied = [column.tied(records) for column in played]
    times = {entry: sum(entry in own for own in tied) for entry in judged}
    chosen = min(times, key=lambda entry: (-times[entry], *_cost(entry, records)))
    some = {entry for own in found for entry in own if entry not in times}
    left_out = tuple(entry for entry in ENTRIES if entry in some)
    return Advice(chosen, times[chosen], times[BASELINE], len(played), left_out)


def winners(columns: Sequence[Column], records: Records) -> dict[str, int]:
    """Entries that are better than FedAvg by more than the noise → on how many of the arenas."""
    found = [column.standings(records) for column in columns]
    times = {entry: sum(entry in own and own[entry].better for own in found) for entry in ENTRIES}
    return {entry: count for entry, count in times.items() if count}


def deserve_to_be_default(
    situations: Mapping[str, Sequence[Column]], records: Records
) -> tuple[str, ...]:
    """Entries better than FedAvg, by more than the noise, on at least half of a row's arenas."""
    return tuple(
        dict.fromkeys(
            entry
            for columns in situations.values()
            for entry, count in winners(columns, records).items()
            if 2 * count >= len(columns)
        )
    )


def _cost(entry: str, records: Records) -> tuple[float, int]:
    """Bytes and compute together, then the place among the entries."""
    played = [own.content for (_, name), own in records.items() if name == entry]
    costs = [content["costs"] for content in played if "costs" in content]
    mean = fmean(one["bytes"] + one["compute"] for one in costs) if costs else nan
    return round(mean, 1), list(ENTRIES).index(entry)


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
                reasons[f"{arena.name}: {entry}"] = f"diverged with seeds {seeds}"
    return reasons
