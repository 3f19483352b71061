"""The state of a federation between two rounds, for R runs (seeds) of one method.

Client states that do not fit into memory are on disk: SCAFFOLD's control, MOON's last model and
FedDyn's h are as large as the model, and 10,000 vehicles with 33,000 weights each take 1.3 GB per
seed. Such a table is a file with one row for each vehicle that has taken part; the initial row is
stored once, and single numbers stay in memory.

A row is never overwritten. A vehicle's new row goes to a free slot of the file, and the slot of the
old row becomes free when no `State` refers to it any more. So older states stay valid, a round that
fails changes nothing, and a checkpoint stores the table of slots only: its rows are flushed before
it is complete, and `pin` protects them until the next checkpoint.
"""

import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from fedwatt.errors import RunError
from fedwatt.federation.selection import keeps_mean, mean_model
from fedwatt.methods.rule import Rows

DENSE_BYTES = 2**26
"""Tables up to this size (64 MiB) are plain tensors [R, K, ...]: every round copies them."""
DENSE_DEVICE_BYTES = 2**32
"""The same on a GPU, where copying is fast and fetching rows from disk is slow (4 GiB)."""


class Pages:
    """A file of rows of one size.

    Plain reads and writes rather than a memory map: a full disk is then an error that can be
    reported, not a signal that kills, and rows never count as this process's memory.
    """

    def __init__(self, row_bytes: int, path: Path | None, *, keep: bool = False) -> None:
        self.row_bytes = row_bytes
        self.name = str(path) if path is not None else "a temporary file"
        self.free: list[int] = []
        self.size = 0
        self.pinned: object = None
        try:
            if path is None:
                with tempfile.TemporaryFile(prefix="fedwatt-") as file:
                    self.file = os.dup(file.fileno())
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | (0 if keep else os.O_CREAT | os.O_TRUNC)
                self.file = os.open(path, flags, 0o644)
        except OSError as error:
            raise self._failure("open", error) from error
        weakref.finalize(self, os.close, self.file)

    def write(self, row: Tensor) -> "RowSlot":
        """Put a row [...] into a free slot."""
        data = row.numpy().data
        if self.free:
            number = self.free.pop()
        else:
            number, self.size = self.size, self.size + 1
        slot = RowSlot(self, number, crc32(data))
        try:
            written = os.pwrite(self.file, data, number * self.row_bytes)
        except OSError as error:
            raise self._failure("write", error) from error
        if written != self.row_bytes:
            raise self._failure("write", OSError("No space left on device"))
        return slot

    def read(self, slot: "RowSlot", into: Tensor) -> None:
        """Fill `into` [...] with a slot's row."""
        data = into.numpy().data
        try:
            count = os.preadv(self.file, [data], slot.number * self.row_bytes)
        except OSError as error:
            raise self._failure("read", error) from error
        if count != self.row_bytes or crc32(data) != slot.checksum:
            raise RunError(
                f"The file of client states {self.name} is damaged. Delete its checkpoint folder "
                "to start the method anew."
            )

    def flush(self) -> None:
        """Make sure that all rows have reached the disk."""
        try:
            os.fsync(self.file)
        except OSError as error:
            raise self._failure("write", error) from error

    def _failure(self, what: str, error: OSError) -> RunError:
        return RunError(
            f"Cannot {what} the client states in {self.name}: {error.strerror or error}. "
            "Completed rounds are stored: continue with --resume when this is put right."
        )


class RowSlot:
    """A row's place in the file, which becomes free when nothing refers to this object."""

    __slots__ = ("checksum", "number", "pages")

    def __init__(self, pages: Pages, number: int, checksum: int) -> None:
        self.pages = pages
        self.number = number
        self.checksum = checksum

    def __del__(self) -> None:
        self.pages.free.append(self.number)


class Paged:
    """A table [R, K, ...] of rows in a file, indexed like a tensor."""

    def __init__(
        self, pages: Pages, initial: Tensor, slots: list[dict[int, RowSlot]], device: torch.device
    ) -> None:
        self.pages = pages
        self.initial = initial
        """The row of a vehicle that has not taken part yet, [...], on the host."""
        self.slots = slots
        """[R], each with the vehicles that have taken part."""
        self.device = device

    def __getitem__(self, key: tuple[Sequence[int], Sequence[int]]) -> Tensor:
        """Return the rows [P, ...] of the (run, vehicle) pairs of two sequences, on the device."""
        row_slots = [self.slots[run].get(vehicle) for run, vehicle in zip(*key, strict=True)]
        rows = self.initial.expand(len(row_slots), *self.initial.shape).clone()
        for row, slot in zip(rows, row_slots, strict=True):
            if slot is not None:
                self.pages.read(slot, row)
        return rows.to(self.device)

    def __setitem__(self, key: tuple[Sequence[int], Sequence[int]], values: Tensor) -> None:
        """Set the rows `values` [P, ...] of the (run, vehicle) pairs of two sequences."""
        values = values.to("cpu", self.initial.dtype).contiguous()
        for run, vehicle, row in zip(*key, values, strict=True):
            self.slots[run][vehicle] = self.pages.write(row)

    def clone(self) -> "Paged":
        """Return a table whose rows may change without changing this one's."""
        return Paged(
            self.pages, self.initial, [dict(run_slots) for run_slots in self.slots], self.device
        )

    def to(self, device: torch.device) -> "Paged":
        """Return the table, handing out its rows on another device."""
        return Paged(self.pages, self.initial, self.slots, device)

    def pin(self) -> None:
        """Protect these rows, instead of those pinned before, from being overwritten."""
        self.pages.pinned = self.slots

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint stores: the places of the rows, without the rows."""
        rows = [
            (run, vehicle, slot.number, slot.checksum)
            for run, run_slots in enumerate(self.slots)
            for vehicle, slot in run_slots.items()
        ]
        table = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4)
        return {"rows": table, "runs": torch.tensor(len(self.slots)), "initial": self.initial}

    @classmethod
    def from_tensors(cls, parts: Mapping[str, Tensor], path: Path) -> "Paged":
        """Return the table of a checkpoint's `tensors`, with its rows in the file `path`."""
        initial = parts["initial"]
        pages = Pages(initial.nbytes, path, keep=True)
        rows = parts["rows"].tolist()
        numbers = {number for _, _, number, _ in rows}
        pages.size = max(numbers, default=-1) + 1
        pages.free = sorted(set(range(pages.size)) - numbers)
        slots: list[dict[int, RowSlot]] = [{} for _ in range(int(parts["runs"]))]
        for run, vehicle, number, checksum in rows:
            slots[run][vehicle] = RowSlot(pages, number, checksum)
        table = cls(pages, initial, slots, torch.device("cpu"))
        table.pin()
        return table


Table = Tensor | Paged  # one entry of the client states, [R, K, ...]


def new_table(value: Tensor, runs: int, vehicles: int, path: Path | None) -> Table:
    """Return a table whose every row is `value`; in the file `path` if it would be large."""
    limit = DENSE_BYTES if value.device.type == "cpu" else DENSE_DEVICE_BYTES
    if value.dim() == 0 or runs * vehicles * value.nbytes <= limit:
        return value.expand(runs, vehicles, *value.shape).clone()
    slots: list[dict[int, RowSlot]] = [{} for _ in range(runs)]
    return Paged(Pages(value.nbytes, path), value.cpu(), slots, value.device)


def pages_path(folder: Path | None, name: str) -> Path | None:
    """Return the file of the table called `name`; None: a temporary one."""
    return None if folder is None else folder / f"{name}.rows"


def gathered(flat: Mapping[str, Tensor], folder: Path | None) -> dict[str, Table]:
    """Return tables by name from a checkpoint's tensors; "name@part" belongs to a paged table."""
    tables: dict[str, Table] = {n: t for n, t in flat.items() if "@" not in n}
    for name in {n.partition("@")[0] for n in flat if "@" in n}:
        path = pages_path(folder, name)
        if path is None:
            raise RunError(f"The rows of '{name}' are in a separate file: pass its folder.")
        parts = {n.partition("@")[2]: t for n, t in flat.items() if n.startswith(f"{name}@")}
        tables[name] = Paged.from_tensors(parts, path)
    return tables


@dataclass(frozen=True)
class State:
    """The federation between two rounds, as a checkpoint stores it."""

    round: int  # completed rounds, t
    weights: Tensor  # global models w_t, [R, D]
    server: Rows  # state of the server rule, each [R, ...]
    client_state: dict[str, Table]
    """Client states by name, each [R, K, ...]; large tables are on disk."""
    available: Tensor  # A_t as a mask, [R, K]
    diverged: Tensor  # round after which a run was no longer finite, [R]; 0: it is finite
    stopped: Tensor  # round after which a run stopped early, [R]; 0: it did not
    best_weights: Tensor  # the model with the lowest validation RMSE so far, [R, D]
    best_round: Tensor  # its round, [R]
    best_validation: Tensor  # its validation RMSE in the target's unit, [R], float64
    best_test: Tensor  # its test RMSE in the target's unit, [R], float64
    mean_validation: Tensor
    """Validation RMSE of the mean of the best and the last model, in the target's unit, [R],
    float64; infinite until that is evaluated, after the last round."""
    events: Rows = field(default_factory=dict)
    """State of the backend: with a buffer the clock, the vehicles at work and their models; of a
    deployed fleet the records of each vehicle."""

    @property
    def live(self) -> list[int]:
        """The runs that are still finite."""
        return (self.diverged == 0).nonzero().flatten().tolist()

    @property
    def at_work(self) -> list[int]:
        """The runs that still train: finite, and not stopped early."""
        return ((self.diverged == 0) & (self.stopped == 0)).nonzero().flatten().tolist()

    @property
    def models(self) -> dict[str, Tensor]:
        """The models of each run by their names in `selection.GLOBAL_MODELS`, [R, D] each."""
        return {"final": self.final_weights, "best": self.best_weights, "last": self.weights}

    @property
    def keeps_mean(self) -> Tensor:
        """Return whether each run's final model is the mean of its best and its last one, [R]."""
        return keeps_mean(self.mean_validation, self.best_validation)

    @property
    def final_weights(self) -> Tensor:
        """The final model of each run, [R, D]: the mean, or the best one (`selection`)."""
        mean = mean_model(self.best_weights, self.weights)
        chosen = self.keeps_mean[:, None].to(mean.device)
        return torch.where(chosen, mean, self.best_weights)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors under flat names, as a checkpoint stores them."""
        flat: dict[str, Tensor] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                flat[part.name] = value
            elif isinstance(value, dict):
                for name, values in value.items():
                    if isinstance(values, Paged):
                        flat |= {f"{part.name}.{name}@{n}": t for n, t in values.tensors().items()}
                    else:
                        flat[f"{part.name}.{name}"] = values
        return flat

    def to(self, device: torch.device) -> "State":
        """Return the state with models and client states on `device`."""
        return replace(
            self,
            weights=self.weights.to(device),
            best_weights=self.best_weights.to(device),
            server={name: table.to(device) for name, table in self.server.items()},
            client_state={name: table.to(device) for name, table in self.client_state.items()},
            events={n: t.to(device) if n == "models" else t for n, t in self.events.items()},
        )

    @property
    def paged(self) -> list[Paged]:
        """The tables that are on disk."""
        return [table for table in self.client_state.values() if isinstance(table, Paged)]

    @classmethod
    def from_tensors(
        cls, round: int, flat: Mapping[str, Tensor], pages: Path | None = None
    ) -> "State":
        """Return the state from its `tensors`; `pages` is the folder of tables on disk."""

        def group(prefix: str) -> Rows:
            return {n.removeprefix(prefix): t for n, t in flat.items() if n.startswith(prefix)}

        plain = {name: tensor for name, tensor in flat.items() if "." not in name}
        server = group("server.")
        events = group("events.")
        client_state = gathered(group("client_state."), pages)
        return cls(round=round, server=server, client_state=client_state, events=events, **plain)
