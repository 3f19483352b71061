"""All matches of a tournament, in processes of this machine or on Ray, each kept when finished.

Matches of one entry on arenas of one kind are one piece of work, so that what is compiled for its
rules is compiled once. A match that fails is left out with its reason; all others go on.
"""

import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import torch

from comparison.entries import ENTRIES
from comparison.fleets import ARENAS, read_windows, windows_file
from comparison.plan import Plan
from comparison.play import Match, play
from comparison.records import Record, edge
from fedwatt.errors import SettingError, unknown
from fedwatt.files import write_text
from fedwatt.tuning.grid import run_cells
from fedwatt.windows import Fleet

Say = Callable[[str], None]
LOOK_EVERY_S = 2.0


@dataclass(frozen=True)
class Venue:
    """Where matches are played, and where their records go."""

    out: Path
    stored: Mapping[str, Path]
    """Name → folder of a stored fleet."""
    device: str = "auto"
    processes: int = 1
    ray: str | None = None
    minutes: float = inf
    """No match begins later than this."""

    @property
    def cells(self) -> Path:
        """A folder for every finished match."""
        return self.out / "cells"


def matches(plan: Plan, only: Iterable[str] = ()) -> list[Match]:
    """All that can be played, or those of which every word of one of `only` is a name.

    "ved", "hills" and "scaffold" are such words: a fleet, "level" or "hills", an entry.
    """
    wanted = [set(words.split()) for words in only]
    known = {*ENTRIES, *(word for name in ARENAS for word in name.split())}
    for word in (word for words in wanted for word in words if word not in known):
        raise SettingError(unknown("fleet, entry, 'level' or 'hills'", word, sorted(known)))
    return [
        Match(arena.name, entry, plan)
        for entry in ENTRIES
        for arena in ARENAS.values()
        if not arena.impossible
        and (not wanted or any(words <= {*arena.name.split(), entry} for words in wanted))
    ]


def missing(chosen: Sequence[Match], records: Mapping[tuple[str, str], Record]) -> list[Match]:
    """Matches without a record, and those whose tuning has not come to an end.

    It has yet to go beyond the range of rates, or to come back: from where the entry itself
    diverged, or FedAvg did.
    """
    left = []
    for match in chosen:
        record = records.get((match.arena, match.entry))
        if record is None:
            left.append(match)
            continue
        own, limit = record.content, edge(match.arena, records)
        again = record.beyond and (own["settings"]["rate"] >= limit or own["diverged"])
        if again or record.unfinished(limit):
            left.append(replace(match, before=own, edge=limit))
    return left


def hold(chosen: Sequence[Match], venue: Venue, say: Say) -> list[Path]:
    """Play what has not been played yet; the folders of all matches that are finished.

    A folder with matches of another plan is refused: they would count as played.
    """
    chosen = [replace(match, device=venue.device) for match in chosen]
    left = [match for match in chosen if not _played(match, venue)]
    say(f"{len(chosen)} matches, {len(chosen) - len(left)} of them played before")
    if left:
        files = _opened({match.arena for match in left}, venue, say)
        (_on_ray if venue.ray else _in_processes)(left, files, venue, say)
    return [path for match in chosen if (path := venue.cells / match.name).exists()]


def _played(match: Match, venue: Venue) -> bool:
    """Whether a match is in the folder; SettingError where it was played by another plan."""
    file = venue.cells / match.name / "record.json"
    if not file.exists():
        return False
    unlike = match.plan.differences(Plan.of(json.loads(file.read_text(encoding="utf-8"))["plan"]))
    if unlike:
        raise SettingError(
            f"{venue.out} holds matches of another plan ({unlike}). Name another folder with "
            "--out, or ask for the plan that was played there."
        )
    return True


def _opened(names: Iterable[str], venue: Venue, say: Say) -> dict[str, Path]:
    """The windows of every arena, in files."""
    wanted = [ARENAS[name] for name in ARENAS if name in set(names)]
    folder = venue.out / "fleets"
    if venue.processes == 1:
        return {a.name: windows_file(a, venue.stored, folder, say) for a in wanted}
    with _pool(min(venue.processes, len(wanted))) as pool:
        futures = {a.name: pool.submit(_open_one, a.name, venue.stored, folder) for a in wanted}
        found = {}
        for name, future in futures.items():
            found[name] = future.result()
            say(f"opened {name}")
        return found


def _open_one(name: str, stored: Mapping[str, Path], folder: Path) -> Path:
    return windows_file(ARENAS[name], stored, folder, lambda text: None)


def _in_processes(left: Sequence[Match], files: Mapping[str, Path], venue: Venue, say: Say) -> None:
    until = time.time() + 60 * venue.minutes
    watch = _Watch(left, venue, say)
    groups = list(_groups(left))
    if len(groups) < venue.processes:  # better to compile twice than to wait
        groups = [[match] for match in left]
    if venue.processes == 1:
        for group in groups:
            _play_group(group, files, venue.out, until, watch.look)
    else:
        with _pool(min(venue.processes, len(groups))) as pool:
            waiting: set[Future[None]] = {
                pool.submit(_play_group, group, files, venue.out, until) for group in groups
            }
            while waiting:
                done, waiting = wait(waiting, timeout=LOOK_EVERY_S)
                watch.look()
                for future in done:
                    future.result()
    watch.close()


def _groups(left: Sequence[Match]) -> Iterator[list[Match]]:
    """Matches of one entry and kind of arena, the largest groups and the most vehicles first."""

    def size(match: Match) -> int:
        return ARENAS[match.arena].newcomers  # which are a fixed share of the vehicles

    found: dict[tuple[bool, str], list[Match]] = {}
    for match in left:
        found.setdefault((ARENAS[match.arena].hills, match.entry), []).append(match)
    for group in sorted(found.values(), key=lambda group: -sum(map(size, group))):
        yield sorted(group, key=lambda match: -size(match))


def _play_group(
    group: Sequence[Match],
    files: Mapping[str, Path],
    out: Path,
    until: float,
    after: Callable[[], None] = lambda: None,
) -> None:
    for match in group:
        if time.time() >= until:
            return
        failed = out / "failed" / f"{match.name}.txt"
        try:
            fleet = read_windows(files[match.arena])
            run_cells({match.name: match}, _work, out / "cells", shared=fleet)
            failed.unlink(missing_ok=True)
        except Exception as error:  # one entry's trouble is not the others'
            write_text(failed, f"{error}\n\n{traceback.format_exc()}")
        after()


def _work(match: Match, fleet: Fleet, folder: Path) -> None:
    play(match, fleet, folder)


def _on_ray(left: Sequence[Match], files: Mapping[str, Path], venue: Venue, say: Say) -> None:
    watch = _Watch(left, venue, say)
    for arena, file in files.items():
        cells = {match.name: match for match in left if match.arena == arena}
        fleet, gpus = read_windows(file), 1 if venue.device == "cuda" else 0
        run_cells(
            cells, _work, venue.cells, shared=fleet, ray=venue.ray, gpus=gpus,
            on_done=lambda name, done, of: watch.look(),
        )  # fmt: skip
    watch.close()


class _Watch:
    """Says of every match that it is finished, and how long the rest may take."""

    def __init__(self, left: Sequence[Match], venue: Venue, say: Say) -> None:
        self.left = {match.name for match in left}
        self.all, self.venue, self.say = len(left), venue, say
        self.began = time.monotonic()

    def look(self) -> None:
        """Say what is new."""
        for name in sorted(self.left):
            if (self.venue.cells / name).exists():
                self.left.discard(name)
                done, passed = self.all - len(self.left), time.monotonic() - self.began
                rest = passed / done * len(self.left)
                what = name.replace("_", " ")
                self.say(f"{done}/{self.all} {what}; {rest / 60:.1f} minutes left")

    def close(self) -> None:
        """Say what has not been played, and why."""
        self.look()
        for name in sorted(self.left):
            failed = self.venue.out / "failed" / f"{name}.txt"
            why = failed.read_text(encoding="utf-8").partition("\n")[0] if failed.exists() else ""
            self.say(f"not played: {name.replace('_', ' ')}{f' ({why})' if why else ''}")


def _pool(processes: int) -> ProcessPoolExecutor:
    # A process that was forked could not use the GPU.
    own = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=own, initializer=_one_core)


def _one_core() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
