"""What a vehicle remembers between rounds, on its own disk.

    STATE/memory/RUN/fedwatt-memory                     says that the folder RUN is ours
    STATE/memory/RUN/LABEL/round-000012.safetensors     memory after its reply to round 12
    STATE/memory/RUN/LABEL_residual/...                 what rounding has left of Δ (`updates`)
    STATE/memory/RUN/LABEL/personal.safetensors         the model that it made its own at last
    STATE/memory/RUN/level/LABEL/...                    the same of the run inside this one

The vehicle's own field, if it learns one, lies in the folder RUN as well.

The vehicle cannot know whether its reply counted, so it keeps what it had before and what it would
have after. The next question names the last round that counted (`counted`, -1 for none), and the
vehicle goes on from there: a reply that was lost leaves no trace, as methods with control variates
need (specification of the methods: state changes only when the reply counted). A file appears under
its name only when it is whole and on the disk, so power may fail at any moment.
"""

import logging
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedwatt.files import flush, oldest_first, write_text
from fedwatt.runs.level import LEVEL
from fedwatt.runs.tensors import write_tensors

log = logging.getLogger("fedwatt.deploy")

KEPT_RUNS: Final = 3  # runs whose memory stays on the vehicle, the latest first
MEMORY: Final = "memory"
MARKER: Final = "fedwatt-memory"  # file in every folder that `forget_old_runs` may delete


def level_run(run: str) -> str:
    """The number of the run inside the run of number `run`."""
    return f"{run}/{LEVEL}"


def memory_folder(state: Path, run: str, label: str) -> Path:
    """Where a vehicle keeps its memory of one method in one run; no name can lead elsewhere."""
    return run_folder(state, run) / _safe(label)


def run_folder(state: Path, run: str) -> Path:
    """Where a vehicle keeps what it remembers of one run; one inside another lies in its folder."""
    whole = run.removesuffix(level_run(""))
    folder = state / MEMORY / _safe(whole)
    return folder if whole == run else folder / LEVEL


def personal_file(folder: Path) -> Path:
    """Where the memory of a method has the model that the vehicle made its own."""
    return folder / "personal.safetensors"


def mark(folder: Path) -> None:
    """Say that the folder of a run is ours, and may be deleted when newer runs need room."""
    marker = _whole(folder) / MARKER
    if not marker.exists():
        write_text(marker, "What fedwatt remembers of a run; deleted when newer runs need room.\n")


def remember(folder: Path, round: int, memory: Mapping[str, Tensor]) -> None:
    """Keep `memory` as it is after the reply to `round`, beside what is there."""
    path = folder / f"round-{round:06d}.safetensors"
    mark(folder.parent)
    write_tensors(path, {name: tensor.contiguous().cpu() for name, tensor in memory.items()})
    flush(folder)


def recall(folder: Path, counted: int, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Memory after the round `counted`; `initial` before the first, or where it was lost.

    What belongs to other rounds is deleted: it did not count, and never will. A loss is said in
    the log: the method goes on as with a vehicle that never took part.
    """
    wanted = folder / f"round-{counted:06d}.safetensors"
    for other in folder.glob("round-*.safetensors") if folder.is_dir() else ():
        if other != wanted:
            other.unlink(missing_ok=True)
    return dict(initial) if counted < 0 else _loaded(wanted, initial)


def _loaded(wanted: Path, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Memory in the file `wanted`; `initial`, with a line in the log, where it is lost."""
    if not initial:
        return {}
    try:
        found = load_file(wanted)
    except (OSError, SafetensorError) as error:
        log.warning("%s is lost (%s); this vehicle begins anew", wanted, error)
        return dict(initial)
    same = found.keys() == initial.keys() and all(
        found[name].shape == tensor.shape and found[name].dtype == tensor.dtype
        for name, tensor in initial.items()
    )
    if not same:
        log.warning("%s holds something else; this vehicle begins anew", wanted)
    return dict(found) if same else dict(initial)


def latest(folder: Path, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Memory after the last round that the vehicle replied to, counted or not; `initial`: none.

    For what stays in the vehicle: nobody else's numbers depend on it.
    """
    found = sorted(folder.glob("round-*.safetensors")) if folder.is_dir() else []
    if not found:
        return dict(initial)
    return _loaded(found[-1], initial)


def forget_old_runs(state: Path, run: str) -> None:
    """Delete the memory of all but the latest runs, and nothing that `remember` did not make.

    A run and the run inside it are one.
    """
    ours, present = (state / MEMORY).glob(f"*/{MARKER}"), _whole(run_folder(state, run))
    folders = [f.parent for f in ours if f.parent != present and not f.parent.is_symlink()]
    for old in oldest_first(folders)[: 1 - KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def _whole(folder: Path) -> Path:
    """The folder of a whole run: of a run inside another, the one around it."""
    return folder.parent if folder.name == LEVEL else folder


def _safe(name: str) -> str:
    """A folder name for any text the server may send."""
    plain = "".join(c if c.isalnum() or c in "-_+@" else "_" for c in name)[:60]
    return f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"
