"""Probe schedules: by the age of a vehicle's index or, triggered, by a change of its loss.

"age"        index at least R rounds old
"global"     every R-th round, all participants (the paper's section on overhead)
"triggered"  signs that a vehicle has without probing, each probe paid from a bank:

    d_k   = ‖Δ_k‖/(η_s a_k) of its last counted turn s: drift whatever the rate
    L_t   = Σ_{s<t} ‖w_{s+1} - w_s‖/‖w_s‖, how far the fleet's model has come; the server sends it
    o_k   = d_k over the median of the last round's replies, which the server sends as well

    1  bank ← min(cap, bank + credit)
    2  no index: "first"; younger than R_min: nothing; R rounds old: "age"; |ln d_k/d_p| ≥ θ_d:
       "drift"; L_t - L_p ≥ θ_L: "path"; o_k ≥ θ_hi and not on alert: "outlier"
    3  drift, path and outlier need a bank of 1, or there is no probe
    4  a probe at o_k ≥ θ_hi puts the vehicle on alert, o_k ≤ θ_lo takes it off
    5  probed: bank ← max(0, bank - 1), and d_p, L_p are those of now

Drift and path reset themselves; an outlier would stay one, so it probes once and not for ever. The
share of turns with a probe is at most `credit` and those by age. Unlike in the specification of the
signal, o_k is of rate-free drifts and of the last round's median: the median of the vehicle's own
round would have to be kept for whoever is called later.
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.methods.proximal import PlannedPull
from fedwatt.methods.rule import Rows, Start
from fedwatt.methods.server import Average, Replies
from fedwatt.models import Model
from fedwatt.settings import choice, number
from fedwatt.tables import Column

REASONS: Final = ("", "first", "age", "drift", "path", "outlier")
PROBE_REASON: Final = Column(
    "probe_reason", float, "why it probed: 0 not, 1 first, 2 age, 3 drift, 4 path, 5 outlier"
)


@dataclass(frozen=True)
class Trigger:
    """Thresholds and credit; `oldest` is R."""

    oldest: int = 25
    youngest: int = 2
    """R_min"""
    drift: float = log(1.5)
    """θ_d"""
    path: float = 0.25
    """θ_L"""
    high: float = 2.0
    low: float = 1.3
    credit: float = 0.2
    cap: float = 2.0

    def state(self) -> Rows:
        """Before the first turn, without an axis of vehicles; the first probe is paid for."""
        zero = torch.tensor(0.0).double()
        return {"drift": zero, "path": zero, "alert": zero, "bank": zero + 1}

    def decided(
        self, state: Rows, last: Tensor, round: int, signs: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Rows, Tensor]:
        """(state afterwards, place in `REASONS`), each [P]; `last` is the round of the last probe.

        `signs` are d, L and o, each [P]; 0 where one is not known.
        """
        drift, path, odd = signs
        bank = (state["bank"] + self.credit).clamp(max=self.cap)
        # five credits of 0.2 are a bank of 1
        age = round - last
        paid = bank >= 1 - 1e-9
        comparable = (drift > 0) & (state["drift"] > 0)
        changed = torch.where(comparable, (drift / state["drift"]).log().abs(), 0.0)
        reason = torch.zeros_like(last)
        for place, holds in (
            (5, (odd >= self.high) & (state["alert"] == 0)),
            (4, path - state["path"] >= self.path),
            (3, comparable & (changed >= self.drift)),
        ):
            reason = torch.where(holds, place, reason)
        reason = torch.where(paid, reason, 0)
        reason = torch.where(age >= self.oldest, 2, reason)
        reason = torch.where((age < self.youngest) & (self.oldest > age), 0, reason)
        reason = torch.where(last < 0, 1, reason)
        probed = reason > 0
        alert = torch.where((odd >= self.high) & probed, 1.0, state["alert"])
        alert = torch.where((odd > 0) & (odd <= self.low), 0.0, alert)
        # A reference that is not known yet is the first drift that is.
        reference = torch.where(probed | (state["drift"] == 0), drift, state["drift"])
        after = {
            "drift": torch.where(drift > 0, reference, state["drift"]),
            "path": torch.where(probed, path, state["path"]),
            "alert": alert,
            "bank": torch.where(probed, (bank - 1).clamp(min=0), bank),
        }
        return after, reason


@dataclass(frozen=True, kw_only=True)
class Probing(PlannedPull):
    """A pull by an index that vehicles probe now and then."""

    probe_every: int = number(5, "[1, inf]", "round")
    """R, rounds."""
    probe_schedule: str = choice("age", "global", "triggered")
    """"age", "global", or "triggered", which needs the server "path": `si-fedavg@path`."""

    last_probe: ClassVar[str] = ""
    """Name of the round of the last probe in a vehicle's memory; -1: never."""

    @property
    def triggered(self) -> bool:
        """Return whether signs decide."""
        return self.probe_schedule == "triggered"

    def memory(self, model: Model) -> Rows:
        """Return the state of the trigger besides the last drift; empty for the other schedules."""
        inherited = super().memory(model)
        if not self.triggered:
            return inherited
        trigger_state = {f"trigger_{name}": value for name, value in self._trigger.state().items()}
        return inherited | trigger_state | {"last_drift": torch.tensor(0.0).double()}

    @property
    def _trigger(self) -> Trigger:
        return Trigger(oldest=self.probe_every)

    def server_half(self) -> type[object] | None:
        """Return the server that sends L_t and the typical drift, where the trigger needs them."""
        return PathAverage if self.triggered else super().server_half()

    def uploads(self, model: Model) -> Rows:
        """d_k, for the trigger."""
        trigger_uploads = {"drift_rate": torch.tensor(0.0).double()} if self.triggered else {}
        return super().uploads(model) | trigger_uploads

    def due(self, memory: Rows, start: Start) -> tuple[Rows, list[int], Rows]:
        """Return (What the trigger remembers, rows of the vehicles that probe, what is recorded of
        it).
        """
        signs, reason = self._reasons(memory, start)
        due = reason > 0
        rows = due.nonzero().flatten().tolist()
        return signs, rows, {"probed": due, "probe_reason": reason.double()}

    def _reasons(self, memory: Rows, start: Start) -> tuple[Rows, Tensor]:
        """Return (What the trigger remembers, place in `REASONS` of every vehicle [P])."""
        last = memory[self.last_probe]
        if not self.triggered:
            old = start.round - last >= self.probe_every
            if self.probe_schedule == "global":
                old = torch.full_like(old, start.round % self.probe_every == 0)
            return {}, torch.where(last < 0, 1, torch.where(old, 2, 0))
        drift = memory["last_drift"]
        typical = start.broadcast["typical_drift"].flatten()
        odd = torch.where(typical > 0, drift / typical, 0.0)
        state = {name: memory[f"trigger_{name}"] for name in self._trigger.state()}
        signs = (drift, start.broadcast["path"].flatten(), odd)
        state, reason = self._trigger.decided(state, last, start.round, signs)
        return {f"trigger_{name}": value for name, value in state.items()}, reason

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Return the drift of this turn, for the trigger."""
        if not self.triggered:
            return super().finish(memory, plan, start, deltas)
        assert start.accumulation is not None
        length = torch.linalg.vector_norm(deltas, dim=-1, dtype=torch.float64)
        drift = length / (start.learning_rate * start.accumulation)
        return memory | {"last_drift": drift}, {"drift_rate": drift}


@dataclass(frozen=True, kw_only=True)
class PathAverage(Average):
    """FedAvg's average; vehicles are told how far the model has come, and a usual drift."""

    averages: ClassVar[bool] = False
    stale_reason: ClassVar[str] = (
        "drifts of different rounds would be compared as if they were of one"
    )

    def sum_fault(self) -> str:
        """Return the reason why sums will not do."""
        return "the median of drifts needs every vehicle's own. Use probe_schedule = 'age'."

    def state(self, model: Model) -> Rows:
        """L_t and the median of the last drifts, each [1]; 0: none yet."""
        return {name: torch.zeros(1, dtype=torch.float64) for name in ("path", "typical_drift")}

    def broadcast(self, state: Rows) -> Rows:
        """Both of them."""
        return state

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """w_t + Σ p_k Δ_k, and how far that is."""
        _, after = super().update({}, weights, replies)
        here = weights.double()
        after_weights = after.double()
        come = (after_weights - here).norm() / here.norm().clamp(min=1e-30)
        drift_rates = replies.uploads.get("drift_rate")
        typical = (
            state["typical_drift"]
            if drift_rates is None
            else drift_rates.double().median().reshape(1)
        )
        return {"path": state["path"] + come, "typical_drift": typical}, after
