"""A vehicle's state between rounds, on its own disk.

    STATE/plans/DIGEST/state/METHOD/round-000012.safetensors    after its update of round 12
    STATE/plans/DIGEST/state/METHOD/personalised.safetensors    its personalised model

The vehicle cannot know whether its update counted, so it keeps the state before and after it. The
next request names the last round that counted (-1: none) and the vehicle continues from there: a
lost update leaves no trace, as methods with control variates need. A file appears under its name
only when it is complete and on the disk.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedwatt.deploy import log
from fedwatt.errors import RunError
from fedwatt.files import flush, oldest_first
from fedwatt.runs.model_file import write_tensors

PLANS = "plans"
KEPT_PLANS = 3
"""Plans whose state stays on the vehicle, the latest ones; answers of all plans stay."""
STATE = "state"
PERSONAL = "personalised.safetensors"


def plan_folder(state: Path, digest: str) -> Path:
    """Return the folder of a plan."""
    return state / PLANS / digest


def method_folder(state: Path, digest: str, method: str) -> Path:
    """Return the folder of a method's state; no name can lead elsewhere."""
    plain = "".join(c if c.isalnum() or c in "-_+@" else "_" for c in method)[:60]
    name = f"{plain}-{sha256(method.encode()).hexdigest()[:8]}"
    return plan_folder(state, digest) / STATE / name


def save(folder: Path, round: int, state: Mapping[str, Tensor]) -> None:
    """Write the state after the update of `round`, beside earlier ones."""
    path = folder / f"round-{round:06d}.safetensors"
    write_tensors(path, {name: tensor.contiguous().cpu() for name, tensor in state.items()})
    flush(folder)


def load(folder: Path, counted: int, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state after round `counted`; `initial` before the first, or where it was lost.

    States of other rounds are deleted: their updates did not count.
    """
    path = folder / f"round-{counted:06d}.safetensors"
    for other in folder.glob("round-*.safetensors") if folder.is_dir() else ():
        if other != path:
            other.unlink(missing_ok=True)
    return dict(initial) if counted < 0 else _read(path, initial)


def load_latest(folder: Path, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state after the last update, counted or not; for models that stay here."""
    files = sorted(folder.glob("round-*.safetensors")) if folder.is_dir() else []
    return _read(files[-1], initial) if files else dict(initial)


def _read(path: Path, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if not initial:
        return {}
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        log.warning("%s is lost (%s); this vehicle begins anew", path, error)
        return dict(initial)
    same = state.keys() == initial.keys() and all(
        state[name].shape == tensor.shape and state[name].dtype == tensor.dtype
        for name, tensor in initial.items()
    )
    if not same:
        log.warning("%s holds something else; this vehicle begins anew", path)
    return dict(state) if same else dict(initial)


def delete_old_states(state: Path, digest: str) -> None:
    """Delete the states of all but the latest plans; their answers stay."""
    folders = [
        folder
        for folder in (state / PLANS).glob(f"*/{STATE}")
        if folder.parent.name != digest and not folder.is_symlink()
    ]
    for folder in oldest_first(folders)[: 1 - KEPT_PLANS]:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class StateFolder:
    """A vehicle's state folder, as far as it belongs to one run."""

    state: Path
    run: Path
    plan: str

    @classmethod
    def of(cls, state: Path, run: Path) -> "StateFolder":
        """Return the part of `state` that belongs to `run`, which must be of a deployed fleet."""
        file = run / "deployment.json"
        try:
            plan = str(json.loads(file.read_text(encoding="utf-8"))["plan"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{run} has no deployment.json, so it is no run of a deployed fleet, and no "
                "vehicle's state folder belongs to it. Leave --state out."
            ) from error
        return cls(state, run, plan)

    def personalised(self, label: str) -> Path:
        """Return the file of the model that the vehicle personalised for a method."""
        file = method_folder(self.state, self.plan, label) / PERSONAL
        if not file.is_file():
            raise self._missing(f"personalised model for {label}", "personalisation.enabled = true")
        return file

    def elevation_map(self) -> Path:
        """Return the file of the vehicle's elevation map."""
        file = plan_folder(self.state, self.plan) / "elevation.parquet"
        if not file.is_file():
            raise self._missing("elevation map", "an elevation map to learn")
        return file

    def _missing(self, file: str, plan: str) -> RunError:
        return RunError(
            f"{self.state} has no {file} of the run {self.run}. A vehicle makes it under a plan "
            f"with {plan}, and keeps those of its last three plans."
        )
