"""Checkpoints of one method's training, each whole or not there at all.

    checkpoint/LABEL/round-000012/  state.safetensors, rounds.parquet, clients.parquet,
                                    timing.parquet, manifest.json (round, checksums; written last)

A checkpoint is prepared under a temporary name and renamed when it is complete; only then are older
ones removed. So a kill at any moment leaves the last complete one.
"""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Final

from safetensors.torch import load_file

from fedwatt.errors import RunError
from fedwatt.federation import History, State
from fedwatt.runs.files import flush, write_tensors, write_text, writing
from fedwatt.runs.tables import read_table, write_table

HISTORY: Final = ("rounds", "clients", "timing")


def save_checkpoint(folder: Path, state: State, history: History, config_hash: str) -> None:
    """Write the checkpoint of `state.round` and remove the older ones."""
    target, temporary = folder / f"round-{state.round:06d}", folder / ".part"
    with writing(target):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    try:
        tensors = {name: t.contiguous().cpu() for name, t in state.tensors().items()}
        write_tensors(temporary / "state.safetensors", tensors)
        for name in HISTORY:
            write_table(temporary, name, getattr(history, name))
        manifest = {
            "round": state.round,
            "configuration": config_hash,
            "sha256": {file.name: digest(file) for file in sorted(temporary.iterdir())},
        }
        write_text(temporary / "manifest.json", json.dumps(manifest, indent=2))
        with writing(target):
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            flush(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for older in folder.glob("round-*"):
        if older != target:
            shutil.rmtree(older, ignore_errors=True)


def load_checkpoint(folder: Path, method: str, config_hash: str) -> tuple[State, History] | None:
    """The latest checkpoint, or None where there is none."""
    complete = sorted(folder.glob("round-*"))
    if not complete:
        return None
    latest = complete[-1]
    try:
        manifest = json.loads((latest / "manifest.json").read_text(encoding="utf-8"))
        damaged = [
            name
            for name, expected in manifest["sha256"].items()
            if digest(latest / name) != expected
        ]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(_damaged(latest, str(error))) from error
    if damaged:
        raise RunError(_damaged(latest, f"{damaged[0]} does not match its checksum"))
    if manifest["configuration"] != config_hash:
        raise RunError(
            f"{latest} belongs to another configuration. Resume with the config.toml of its run "
            "folder, or choose another --out."
        )
    state = State.from_tensors(manifest["round"], load_file(latest / "state.safetensors"))
    tables = {name: read_table(latest, name).to_pylist() for name in HISTORY}
    return state, History(method, **tables)


def _damaged(folder: Path, why: str) -> str:
    return (
        f"The checkpoint {folder} is damaged ({why}). Delete that folder to start its method anew."
    )


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()
