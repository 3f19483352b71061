"""A run folder: one run owns it, and checkpoints in it let a training continue.

    checkpoint/LABEL/round-000012/  state.safetensors, rounds.parquet, clients.parquet,
                                    timing.parquet, manifest.json (round, checksums; written last)

A checkpoint is prepared under a temporary name and renamed when it is complete; only then are older
ones removed, all but the last few. So a kill at any moment leaves a complete one, and a disk that
damages the newest leaves the one before.
"""

import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load_file

from fedwatt.errors import DataError, RunError
from fedwatt.federation import History, Loop, State
from fedwatt.files import flush, holding, parse_json, write_text, writing
from fedwatt.privacy import Budget
from fedwatt.runs.config import (
    Deployment,
    MethodChoice,
    RunConfig,
    Track,
    differences,
    from_toml,
    to_toml,
)
from fedwatt.runs.model_file import write_tensors
from fedwatt.runs.observers import Observer
from fedwatt.runs.provenance import changed_since, hash_of, sentence
from fedwatt.runs.tables import read_table, write_table


def refuse_other_run(config: RunConfig, out: Path, resume: bool) -> None:
    """Raise if `out` holds a run that this one would overwrite or could not continue."""
    path = out / "config.toml"
    if not path.exists():
        return
    if not resume:
        raise RunError(
            f"{out} already holds a run. Continue it with --resume, or choose another --out."
        )
    text = path.read_text(encoding="utf-8")
    stored = from_toml(text, str(path))
    if changed := changed_since(text, stored.plugins):
        raise RunError(
            f"{sentence(changed, f'the run in {out} was begun')} A resumed run has the "
            "code that it began with: put it back, or choose another --out."
        )
    if run_hash(stored) != run_hash(config):
        other = differences(_what_counts(stored), _what_counts(config))
        raise RunError(
            f"{out} holds a run with another configuration: {'; '.join(other)}. A resumed "
            "run keeps its configuration, the number of rounds included. Leave these changes out, "
            "or choose another --out."
        )


@contextmanager
def claim(config: RunConfig, out: Path, resume: bool) -> Iterator[None]:
    """Keep every other process from writing into `out`; RunError if one does, or another run's is.

    The lock ends with the process, however that ends.
    """
    taken = f"Another process is writing into {out}. Wait for its end, or choose another --out."
    with holding(out, "folder", taken):
        refuse_other_run(config, out, resume)
        yield


def run_hash(config: RunConfig) -> str:
    """Return a hash of all that determines the numbers of a run."""
    return hash_of([to_toml(_what_counts(config))])


def _what_counts(config: RunConfig) -> RunConfig:
    """Return the configuration without deadlines of a real fleet and trackers, which may change."""
    return replace(config, deploy=Deployment(), track=Track())


log = logging.getLogger("fedwatt.runs")

KEPT = 3
"""Checkpoints of a method that stay."""
HISTORY = ("rounds", "clients", "timing")
FILES = ("state.safetensors", *(f"{name}.parquet" for name in HISTORY))


@dataclass(frozen=True)
class CheckpointOrigin:
    """The identity of a checkpoint: hashes of the configuration and of the fleet's data."""

    configuration: str
    data: str | None
    """None: whatever data it was trained on."""


def save_checkpoint(folder: Path, state: State, history: History, origin: CheckpointOrigin) -> None:
    """Write the checkpoint of `state.round` and remove older ones, all but a few."""
    target = folder / f"round-{state.round:06d}"
    temporary = folder / ".part"
    with writing(target):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    try:
        tensors = {name: t.contiguous().cpu() for name, t in state.tensors().items()}
        write_tensors(temporary / "state.safetensors", tensors)
        for name in HISTORY:
            write_table(temporary, name, getattr(history, name), history.made)
        manifest = {
            "round": state.round,
            **asdict(origin),
            "sha256": {name: digest(temporary / name) for name in FILES},
        }
        write_text(temporary / "manifest.json", json.dumps(manifest, indent=2))
        with writing(target):
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            flush(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    folders = sorted(folder.glob("round-*"))
    remaining = {target, *folders[-KEPT:]}
    for other in folders:
        # One of a later round is of a run that went back to this one.
        if other not in remaining or other > target:
            shutil.rmtree(other, ignore_errors=True)


def load_checkpoint(
    folder: Path, method: str, origin: CheckpointOrigin
) -> tuple[State, History] | None:
    """Return the latest checkpoint, or None where there is none."""
    checkpoint = latest_checkpoint(folder, origin)
    if checkpoint is None:
        return None
    latest, done = checkpoint
    tensors = load_file(latest / "state.safetensors")
    state = State.from_tensors(done, tensors)
    tables = {name: read_table(latest, name).to_pylist() for name in HISTORY}
    return state, History(method, **tables)


def latest_checkpoint(folder: Path, origin: CheckpointOrigin) -> tuple[Path, int] | None:
    """Return folder and round of the latest readable checkpoint; None where there is none.

    RunError if all are damaged, or if it is another's.
    """
    complete = sorted(folder.glob("round-*"), reverse=True)
    for place, latest in enumerate(complete):
        try:
            return _checked(latest, origin)
        except DataError as error:
            if place == len(complete) - 1:
                raise RunError(
                    f"The checkpoint {complete[0]} is damaged ({error}). Delete that folder to "
                    "start its method anew."
                ) from error
            log.warning(
                "The checkpoint %s is damaged (%s); going on from the one before", latest, error
            )
    return None


def _checked(latest: Path, origin: CheckpointOrigin) -> tuple[Path, int]:
    """Return folder and round of a checkpoint; DataError if damaged, RunError if of another run."""
    try:
        manifest = parse_json((latest / "manifest.json").read_text(encoding="utf-8"))
        damaged = [name for name in FILES if digest(latest / name) != manifest["sha256"][name]]
        done = int(manifest["round"])
        recorded = CheckpointOrigin(manifest["configuration"], manifest["data"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"manifest.json: {error}") from error
    if damaged:
        raise DataError(f"{damaged[0]} does not match its checksum")
    if recorded.configuration != origin.configuration:
        raise RunError(
            f"{latest} belongs to another configuration, or to another version of fedwatt. Resume "
            "with the config.toml of its run folder, or choose another --out."
        )
    if origin.data is not None and recorded.data != origin.data:
        raise RunError(
            f"The fleet is not the one that {latest} was trained on: its data has changed. Put it "
            "back, or start anew with another --out."
        )
    return latest, done


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def train_method(
    loop: Loop,
    choice: MethodChoice,
    folder: Path,
    observer: Observer,
    origin: CheckpointOrigin,
    checkpoint_seconds: float,
    budget: Budget | None,
) -> tuple[State, History]:
    """Train all rounds of a method, from its last checkpoint in `folder` if it has one.

    A checkpoint is written at most every `checkpoint_seconds`, and whenever training stops.
    """
    seeds = len(loop.seeds)
    epsilon = None if budget is None else budget.epsilon
    checkpoint = load_checkpoint(folder, choice.label, origin)
    if checkpoint is None:
        state, record = loop.start(choice.method)
        history = History(choice.label)
        history.add(0, seeds, record.spending(epsilon))
    else:
        state, history = checkpoint
        state = state.to(loop.device)
    observer.on_start(choice.label, state.round, loop.training.rounds)
    saved = state.round if checkpoint else -1
    saved_at = time.monotonic()
    try:
        while not loop.finished(state):
            state, record = loop.advance(choice.method, state)
            record = record.spending(epsilon)
            history.add(state.round, seeds, record)
            observer.on_round(choice.label, state, record)
            if time.monotonic() - saved_at >= checkpoint_seconds:
                save_checkpoint(folder, state, history, origin)
                saved = state.round
                saved_at = time.monotonic()
    finally:
        # Reached on Ctrl-C as well: `state` and `history` hold completed rounds only.
        if saved != state.round and history.timing[-1]["round"] == state.round:
            save_checkpoint(folder, state, history, origin)
    observer.on_end(choice.label, history)
    return state, history
