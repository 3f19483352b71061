"""The participants of a round, and the updates of those that trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation.participation import BoolArray, Call, Members
from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.methods.server import Replies
from fedwatt.metrics.rounds import agreement
from fedwatt.randomness import SystemNoise
from fedwatt.tables import RECORDED


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """The mean update of a run, where only sums of updates are known."""

    delta: Tensor
    """[D]"""
    weight: float
    uploads: Rows
    length: float
    """‖Σ ω_k Δ_k‖, ω_k being the vehicles' shares of the windows."""


@dataclass(frozen=True)
class Work:
    """Updates of the vehicles that trained; rows in the order of `calls`."""

    calls: Sequence[Call]
    deltas: Tensor
    """Δ_k, [P, D]"""
    weights: NDArray[np.float64]
    """[P], the weight of each update in a mean: n_k, unless the backend weighs otherwise"""
    finite: BoolArray
    """[P]"""
    counted: BoolArray
    """[P], whether the server aggregates an update"""
    client_state: Rows
    uploads: Rows
    columns: dict[str, list[float]]
    """Columns that the rules record for each vehicle, and `drift`."""
    called: Sequence[Call] = ()
    """All vehicles that were called, in the order of their records; one without a row did not
    reply."""
    places: int = 0
    """Places of the buffer; 0: there is none."""
    clock: Mapping[int, float] = field(default_factory=dict)
    """By run, the simulated time at which all updates had arrived, with a buffer."""
    events: Rows = field(default_factory=dict)
    """Next state of the backend."""
    noised: bool = False
    """Whether vehicles have added the noise of a private method."""
    together: Mapping[int, MeanUpdate] = field(default_factory=dict)
    """By run, the mean update, where single Δ_k and uploads are not known."""

    def replies(
        self,
        run: int,
        rows: Sequence[int],
        members: Members,
        participation: float,
        draws: np.random.Generator | SystemNoise,
    ) -> Replies:
        """Return a run's updates in these rows, as the argument of server rules."""
        count = len(rows)
        mean = self.together.get(run)
        if mean is None:
            deltas = _read(self.deltas, rows)
            weights = _read(self._weights, rows)
            uploads = {name: _read(values, rows) for name, values in self.uploads.items()}
        else:
            deltas = mean.delta.expand(count, -1)
            weights = torch.full((count,), mean.weight, dtype=torch.float64, device=deltas.device)
            uploads = {n: values.expand(count, *values.shape) for n, values in mean.uploads.items()}
        return Replies(
            deltas,
            weights,
            len(members.population),
            members.population_windows,
            draws,
            uploads,
            participation,
            count / self.places if self.places else 1.0,
            self.noised,
            torch.tensor([self.calls[row].steps for row in rows]),
        )

    def to(self, device: torch.device) -> "Work":
        """Return the updates and client states on another device."""
        return replace(
            self,
            deltas=self.deltas.to(device),
            client_state={name: values.to(device) for name, values in self.client_state.items()},
            uploads={name: values.to(device) for name, values in self.uploads.items()},
        )

    def of(self, run: int) -> list[int]:
        """Return the rows of a run, in ascending order of its vehicles."""
        return self._rows.get(run, [])

    @cached_property
    def _weights(self) -> Tensor:
        """The weights on the device of the updates."""
        return torch.from_numpy(self.weights).to(self.deltas.device)

    @cached_property
    def _rows(self) -> dict[int, list[int]]:
        """Row numbers of each run, in ascending order of vehicles."""
        rows_of_run: dict[int, list[int]] = {}
        for row, call in sorted(enumerate(self.calls), key=lambda pair: pair[1].vehicle):
            rows_of_run.setdefault(call.run, []).append(row)
        return rows_of_run


def no_work(weights: Tensor) -> Work:
    """Return the work of a round without participants; `weights` is [R, D]."""
    none = np.zeros(0, dtype=bool)
    return Work((), weights[:0], np.zeros(0), none, none, {}, {}, {})


def joined(parts: Sequence[Work]) -> Work:
    """Return the rows of several stacks as one."""
    first = parts[0]
    return Work(
        [call for part in parts for call in part.calls],
        torch.cat([part.deltas for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.finite for part in parts]),
        np.concatenate([part.counted for part in parts]),
        {
            name: torch.cat([part.client_state[name] for part in parts])
            for name in first.client_state
        },
        {name: torch.cat([part.uploads[name] for part in parts]) for name in first.uploads},
        {name: [value for part in parts for value in part.columns[name]] for name in first.columns},
    )


def agreements(work: Work) -> dict[int, float]:
    """Return A_t of each run's updates that count; empty where single lengths are not known."""
    counted = np.flatnonzero(work.counted).tolist()
    if not counted or "drift" not in work.columns:
        return {}
    if work.together:
        return _of_sums(work)
    deltas = work.deltas
    if len(counted) < len(deltas):
        deltas = deltas[torch.tensor(counted, device=deltas.device)]
    runs = np.array([work.calls[row].run for row in counted])
    run_numbers = np.unique(runs)
    shares = np.where(runs == run_numbers[:, None], work.weights[counted], 0.0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    means = torch.from_numpy(shares).to(deltas) @ deltas
    lengths = np.array(work.columns["drift"])[counted]
    together = torch.linalg.vector_norm(means, dim=-1, dtype=torch.float64).tolist()
    return {
        int(run): agreement(run_shares, lengths, mean)
        for run, run_shares, mean in zip(run_numbers, shares, together, strict=True)
    }


def _of_sums(work: Work) -> dict[int, float]:
    """Return `agreements` from single lengths and the length of the mean update."""
    stand_ins = {}
    for run, mean in work.together.items():
        rows = [row for row in work.of(run) if work.counted[row]]
        shares = work.weights[rows] / work.weights[rows].sum()
        stand_ins[run] = agreement(shares, np.array(work.columns["drift"])[rows], mean.length)
    return stand_ins


def picked(values: Tensor, rows: Sequence[int]) -> Tensor:
    """Return `values`[rows], three times as fast as indexing by a list."""
    return values.index_select(0, torch.tensor(rows, dtype=torch.int64, device=values.device))


def _read(values: Tensor, rows: Sequence[int]) -> Tensor:
    """Return `values`[rows] to read from: a view where the rows are neighbours."""
    first, count = (rows[0], len(rows)) if rows else (0, 0)
    if list(rows) == list(range(first, first + count)):
        return values[first : first + count]
    return picked(values, rows)


def enough(work: Work, needed: int) -> Work:
    """Return the work without the updates of runs that have fewer than `needed` of them.

    Falling back to a plain mean would drop the defence just when few updates decide.
    """
    if needed <= 1:
        return work
    counted = work.counted.copy()
    for run in {call.run for call in work.calls}:
        run_work = work.of(run)
        if work.counted[run_work].sum() < needed:
            counted[run_work] = False
    return replace(work, counted=counted)


def recorded_columns(rules: Sequence[LocalRule], plans: Sequence[Rows]) -> dict[str, list[float]]:
    """Return the columns that the rules record, from their plans: a number for each vehicle."""
    columns = {}
    for rule, plan in zip(rules, plans, strict=True):
        for column in rule.records:
            name = column.name
            if name not in plan:
                # A rule may leave out a column that every table of clients has.
                if column not in RECORDED:
                    raise SettingError(
                        f"{type(rule).__name__} records '{name}', which its `begin` does not "
                        "return. Let it return a number for each vehicle, [P], NaN for none."
                    )
                continue
            if plan[name].dim() != 1:
                raise SettingError(
                    f"{type(rule).__name__} records '{name}', which has the shape "
                    f"{list(plan[name].shape)}. Let `begin` return a number for each vehicle, [P]."
                )
            columns[name] = plan[name].tolist()
    return columns
