"""The state of a federation between two rounds, for R runs (seeds) of one method.

SCAFFOLD's control, MOON's last model and FedDyn's h are as large as the model: 10,000 vehicles with
33,000 weights each take 1.3 GB per seed. A table that would be large has rows only for the vehicles
that have taken part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from fedwatt.federation.selection import keeps_mean, mean_model
from fedwatt.methods.rule import Rows

DENSE_BYTES = 2**26
"""Tables up to this size (64 MiB) are plain tensors [R, K, ...]: every round copies them."""
DENSE_DEVICE_BYTES = 2**32
"""The same on a GPU, where copying is fast and fetching rows from the host is slow (4 GiB)."""


class SparseTable:
    """A table [R, K, ...] with rows for the vehicles that have taken part, indexed like a tensor.

    A row is replaced and never written to, so that an older state keeps its own.
    """

    def __init__(
        self, initial: Tensor, rows: list[dict[int, Tensor]], device: torch.device
    ) -> None:
        self.initial = initial
        """The row of a vehicle that has not taken part yet, [...], on the host."""
        self.rows = rows
        """[R], each with the rows of the vehicles that have taken part, on the host."""
        self.device = device

    def __getitem__(self, key: tuple[Sequence[int], Sequence[int]]) -> Tensor:
        """Return the rows [P, ...] of the (run, vehicle) pairs of two sequences, on the device."""
        pairs = zip(*key, strict=True)
        rows = [self.rows[run].get(vehicle, self.initial) for run, vehicle in pairs]
        if not rows:
            return self.initial.new_empty((0, *self.initial.shape), device=self.device)
        return torch.stack(rows).to(self.device)

    def __setitem__(self, key: tuple[Sequence[int], Sequence[int]], values: Tensor) -> None:
        """Set the rows `values` [P, ...] of the (run, vehicle) pairs of two sequences."""
        values = values.to("cpu", self.initial.dtype)
        for run, vehicle, row in zip(*key, values, strict=True):
            self.rows[run][vehicle] = row.clone()

    def clone(self) -> "SparseTable":
        """Return a table whose rows may change without changing this one's."""
        return SparseTable(self.initial, [dict(rows) for rows in self.rows], self.device)

    def to(self, device: torch.device) -> "SparseTable":
        """Return the table, handing out its rows on another device."""
        return SparseTable(self.initial, self.rows, device)

    def tensors(self) -> dict[str, Tensor]:
        """Return the parts that a checkpoint stores."""
        pairs = [(run, vehicle) for run, rows in enumerate(self.rows) for vehicle in rows]
        return {
            "pairs": torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
            "rows": self[[run for run, _ in pairs], [vehicle for _, vehicle in pairs]],
            "runs": torch.tensor(len(self.rows)),
            "initial": self.initial,
        }

    @classmethod
    def from_tensors(cls, parts: Mapping[str, Tensor]) -> "SparseTable":
        """Return the table of a checkpoint's `tensors`."""
        table = _empty(parts["initial"], int(parts["runs"]))
        runs, vehicles = parts["pairs"].T.tolist()
        table[runs, vehicles] = parts["rows"]
        return table


def _empty(initial: Tensor, runs: int) -> SparseTable:
    return SparseTable(initial.cpu(), [{} for _ in range(runs)], initial.device)


Table = Tensor | SparseTable  # one entry of the client states, [R, K, ...]


def new_table(value: Tensor, runs: int, vehicles: int) -> Table:
    """Return a table whose every row is `value`; a sparse one if it would be large."""
    limit = DENSE_BYTES if value.device.type == "cpu" else DENSE_DEVICE_BYTES
    if value.dim() == 0 or runs * vehicles * value.nbytes <= limit:
        return value.expand(runs, vehicles, *value.shape).clone()
    return _empty(value, runs)


def _joined_tables(flat: Mapping[str, Tensor]) -> dict[str, Table]:
    """Return tables by name from a checkpoint's tensors; "name@part" belongs to a sparse one."""
    tables: dict[str, Table] = {n: t for n, t in flat.items() if "@" not in n}
    for name in {n.partition("@")[0] for n in flat if "@" in n}:
        parts = {n.partition("@")[2]: t for n, t in flat.items() if n.startswith(f"{name}@")}
        tables[name] = SparseTable.from_tensors(parts)
    return tables


@dataclass(frozen=True)
class State:
    """The federation between two rounds, as a checkpoint stores it."""

    round: int  # completed rounds, t
    weights: Tensor  # global models w_t, [R, D]
    server: Rows  # state of the server rule, each [R, ...]
    client_state: dict[str, Table]
    """Client states by name, each [R, K, ...]."""
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
                    if isinstance(values, SparseTable):
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

    @classmethod
    def from_tensors(cls, round: int, flat: Mapping[str, Tensor]) -> "State":
        """Return the state from its `tensors`."""

        def group(prefix: str) -> Rows:
            return {n.removeprefix(prefix): t for n, t in flat.items() if n.startswith(prefix)}

        plain = {name: tensor for name, tensor in flat.items() if "." not in name}
        server = group("server.")
        events = group("events.")
        client_state = _joined_tables(group("client_state."))
        return cls(round=round, server=server, client_state=client_state, events=events, **plain)
