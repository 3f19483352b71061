"""All runs of a comparison, in processes of this machine or on Ray, each kept when finished.

Runs of one method on datasets of one kind are one piece of work, so that what is compiled for its
rules is compiled once. A run that fails is left out with its reason; all others go on.
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

from comparison.candidates import CANDIDATES
from comparison.carry_out import PlannedRun, carry_out
from comparison.datasets import DATASETS, read_windows, windows_file
from comparison.plan import Plan
from comparison.records import Record, edge
from fedwatt.errors import SettingError, unknown
from fedwatt.files import write_text
from fedwatt.tuning.grid import run_cells
from fedwatt.windows import Fleet

Say = Callable[[str], None]
LOOK_EVERY_S = 2.0


@dataclass(frozen=True)
class Workspace:
    """The folder and sources of runs and their records."""

    out: Path
    stored: Mapping[str, Path]
    """Name → folder of a stored fleet."""
    device: str = "auto"
    processes: int = 1
    ray: str | None = None
    minutes: float = inf
    """No run begins later than this."""

    @property
    def cells(self) -> Path:
        """A folder for every finished run."""
        return self.out / "cells"


def planned_runs(plan: Plan, only: Iterable[str] = ()) -> list[PlannedRun]:
    """Return everything that can be run, or those of which every word of one of `only` is a name.

    "ved", "elevation" and "scaffold" are such words: a fleet, "base" or "elevation", a method.
    """
    word_sets = [set(words.split()) for words in only]
    words_known = {*CANDIDATES, *(word for name in DATASETS for word in name.split())}
    for word in (word for words in word_sets for word in words if word not in words_known):
        raise SettingError(
            unknown("fleet, method, 'base' or 'elevation'", word, sorted(words_known))
        )
    return [
        PlannedRun(dataset.name, candidate, plan)
        for candidate in CANDIDATES
        for dataset in DATASETS.values()
        if not dataset.impossible
        and (
            not word_sets or any(words <= {*dataset.name.split(), candidate} for words in word_sets)
        )
    ]


def missing(
    chosen: Sequence[PlannedRun], records: Mapping[tuple[str, str], Record]
) -> list[PlannedRun]:
    """Return runs without a record, and those whose tuning has not come to an end.

    It has yet to go beyond the range of rates, or to come back: from where the candidate itself
    diverged, or FedAvg did.
    """
    left = []
    for planned in chosen:
        record = records.get((planned.dataset, planned.candidate))
        if record is None:
            left.append(planned)
            continue
        content = record.content
        limit = edge(planned.dataset, records)
        again = record.beyond and (
            content["settings"]["learning_rate"] >= limit or content["diverged"]
        )
        if again or record.unfinished(limit):
            left.append(replace(planned, before=content, edge=limit))
    return left


def run_all(chosen: Sequence[PlannedRun], workspace: Workspace, say: Say) -> list[Path]:
    """Play what has not been run yet; the folders of all runs that are finished.

    A folder with runs of another plan is refused: they would count as run.
    """
    chosen = [replace(planned, device=workspace.device) for planned in chosen]
    left = [planned for planned in chosen if not _finished(planned, workspace)]
    say(f"{len(chosen)} runs, {len(chosen) - len(left)} of them run before")
    if left:
        files = _opened({planned.dataset for planned in left}, workspace, say)
        (_on_ray if workspace.ray else _in_processes)(left, files, workspace, say)
    return [path for planned in chosen if (path := workspace.cells / planned.name).exists()]


def _finished(planned: PlannedRun, workspace: Workspace) -> bool:
    """Return whether a run is in the folder; SettingError where it was run by another plan."""
    file = workspace.cells / planned.name / "record.json"
    if not file.exists():
        return False
    unlike = planned.plan.differences(Plan.of(json.loads(file.read_text(encoding="utf-8"))["plan"]))
    if unlike:
        raise SettingError(
            f"{workspace.out} holds runs of another plan ({unlike}). Name another folder with "
            "--out, or ask for the plan that was run there."
        )
    return True


def _opened(names: Iterable[str], workspace: Workspace, say: Say) -> dict[str, Path]:
    """Return the windows of every dataset, in files."""
    datasets = [DATASETS[name] for name in DATASETS if name in set(names)]
    folder = workspace.out / "fleets"
    if workspace.processes == 1:
        return {a.name: windows_file(a, workspace.stored, folder, say) for a in datasets}
    with _pool(min(workspace.processes, len(datasets))) as pool:
        futures = {
            a.name: pool.submit(_open_one, a.name, workspace.stored, folder) for a in datasets
        }
        fleets = {}
        for name, future in futures.items():
            fleets[name] = future.result()
            say(f"opened {name}")
        return fleets


def _open_one(name: str, stored: Mapping[str, Path], folder: Path) -> Path:
    return windows_file(DATASETS[name], stored, folder, lambda text: None)


def _in_processes(
    left: Sequence[PlannedRun], files: Mapping[str, Path], workspace: Workspace, say: Say
) -> None:
    until = time.time() + 60 * workspace.minutes
    watch = _Watch(left, workspace, say)
    groups = list(_groups(left))
    if len(groups) < workspace.processes:  # better to compile twice than to wait
        groups = [[planned] for planned in left]
    if workspace.processes == 1:
        for group in groups:
            _run_group(group, files, workspace.out, until, watch.look)
    else:
        with _pool(min(workspace.processes, len(groups))) as pool:
            waiting: set[Future[None]] = {
                pool.submit(_run_group, group, files, workspace.out, until) for group in groups
            }
            while waiting:
                done, waiting = wait(waiting, timeout=LOOK_EVERY_S)
                watch.look()
                for future in done:
                    future.result()
    watch.close()


def _groups(left: Sequence[PlannedRun]) -> Iterator[list[PlannedRun]]:
    """Yield runs of one candidate and kind of dataset, largest groups and most vehicles first."""

    def size(planned: PlannedRun) -> int:
        return DATASETS[planned.dataset].unseen  # which are a fixed share of the vehicles

    groups: dict[tuple[bool, str], list[PlannedRun]] = {}
    for planned in left:
        groups.setdefault((DATASETS[planned.dataset].elevation, planned.candidate), []).append(
            planned
        )
    for group in sorted(groups.values(), key=lambda group: -sum(map(size, group))):
        yield sorted(group, key=lambda planned: -size(planned))


def _run_group(
    group: Sequence[PlannedRun],
    files: Mapping[str, Path],
    out: Path,
    until: float,
    after: Callable[[], None] = lambda: None,
) -> None:
    for planned in group:
        if time.time() >= until:
            return
        failed = out / "failed" / f"{planned.name}.txt"
        try:
            fleet = read_windows(files[planned.dataset])
            run_cells({planned.name: planned}, _work, out / "cells", shared=fleet)
            failed.unlink(missing_ok=True)
        except Exception as error:  # one candidate's trouble is not the others'
            write_text(failed, f"{error}\n\n{traceback.format_exc()}")
        after()


def _work(planned: PlannedRun, fleet: Fleet, folder: Path) -> None:
    carry_out(planned, fleet, folder)


def _on_ray(
    left: Sequence[PlannedRun], files: Mapping[str, Path], workspace: Workspace, say: Say
) -> None:
    watch = _Watch(left, workspace, say)
    for dataset, file in files.items():
        cells = {planned.name: planned for planned in left if planned.dataset == dataset}
        fleet = read_windows(file)
        gpus = 1 if workspace.device == "cuda" else 0
        run_cells(
            cells, _work, workspace.cells, shared=fleet, ray=workspace.ray, gpus=gpus,
            on_done=lambda name, done, of: watch.look(),
        )  # fmt: skip
    watch.close()


class _Watch:
    """Says of every run that it is finished, and how long the rest may take."""

    def __init__(self, left: Sequence[PlannedRun], workspace: Workspace, say: Say) -> None:
        self.left = {planned.name for planned in left}
        self.all = len(left)
        self.workspace = workspace
        self.say = say
        self.began = time.monotonic()

    def look(self) -> None:
        """Say what is new."""
        for name in sorted(self.left):
            if (self.workspace.cells / name).exists():
                self.left.discard(name)
                done = self.all - len(self.left)
                passed = time.monotonic() - self.began
                remaining_s = passed / done * len(self.left)
                what = name.replace("_", " ")
                self.say(f"{done}/{self.all} {what}; {remaining_s / 60:.1f} minutes left")

    def close(self) -> None:
        """Say what has not been run, and why."""
        self.look()
        for name in sorted(self.left):
            failed = self.workspace.out / "failed" / f"{name}.txt"
            why = failed.read_text(encoding="utf-8").partition("\n")[0] if failed.exists() else ""
            self.say(f"not run: {name.replace('_', ' ')}{f' ({why})' if why else ''}")


def _pool(processes: int) -> ProcessPoolExecutor:
    # A process that was forked could not use the GPU.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_one_core)


def _one_core() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
