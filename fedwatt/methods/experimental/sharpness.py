"""L1: an index that can be measured twice (relative sharpness), and probes when signs ask for them.

The paper's roughness index divides small numbers by small numbers and cannot tell vehicles apart
(docs/methods.md). Relative sharpness is how much the loss rises, relative to itself, at a relative
distance ℓ from the broadcast model, in the mean over M directions d_i (after Li et al., NeurIPS
2018, who scale the directions; Foret et al., ICLR 2021, who use the rise):

    d_f = z_f ‖w_f‖ / ‖z_f‖       f: the incoming weights of one unit; biases 0; z normal
    e_i = ½ (φ_i(ℓ) + φ_i(-ℓ)) - φ(0),     φ_i(s) = loss(w_t + s d_i)
    J_k = max(0, mean_i e_i) / φ(0)

Points on both sides cancel the gradient exactly, so that J is ½ℓ² dᵀHd / φ(0) for a quadratic; it
costs 2M + 1 evaluations. Directions are common to all vehicles of a round, the probe batch is the
same in all rounds, and an exponential mean over probes removes most of the remaining noise:

    m ← βᵃ m + (1 - βᵃ) J,   c ← βᵃ c + (1 - βᵃ),   Ĵ_k = m / c     a: rounds since the last probe

Vehicle k is pulled toward w_t with strength μ_k = λ Ĵ_k / (Ĵ_k + τ).

Triggered probes (`triggered-sharpness@path`) are paid for from a bank, and use signs that a vehicle
has without probing:

    d_k   = ‖Δ_k‖/(η_s a_k) of its last counted round s: drift whatever the learning rate
    L_t   = Σ_{s<t} ‖w_{s+1} - w_s‖/‖w_s‖, the path of the fleet's model; the server sends it
    o_k   = d_k over the median of the last round's updates, which the server sends as well

    1  bank ← min(cap, bank + credit)
    2  no index: "first"; younger than R_min: nothing; R rounds old: "age"; |ln d_k/d_p| ≥ θ_d:
       "drift"; L_t - L_p ≥ θ_L: "path"; o_k ≥ θ_hi and not on alert: "outlier"
    3  drift, path and outlier need a bank of 1, or there is no probe
    4  a probe at o_k ≥ θ_hi puts the vehicle on alert, o_k ≤ θ_lo takes it off
    5  probed: bank ← max(0, bank - 1), and d_p, L_p are those of now

Drift and path reset themselves; an outlier would stay one, so it probes once and not for ever.

What came of it: the index repeats (share of its variance between vehicles 0.83 to 0.90, against
-0.01 to 0.00 of the paper's) at 1/33 of the cost of a probe, but the pull that follows it gains
nothing: `si-fedavg` equals FedAvg within 0.05 Wh on all five datasets of the method comparison.
"""

from dataclasses import dataclass
from functools import partial
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.roughness import Probing, Slicing, measured
from fedwatt.methods.rule import Rows, Start
from fedwatt.methods.server import Average, Replies
from fedwatt.models import Model
from fedwatt.settings import Range, choice, number
from fedwatt.tables import PROBED, PULL, Column

SMALLEST_LOSS = 1e-12
"""A loss below this value is rounding."""
SHARPNESS = Column("sharpness", float, "Ĵ_k, relative sharpness of the vehicle's loss")
PROBE_LOSS = Column("probe_loss", float, "φ(0), the loss of its last probe at w_t")
REASONS = ("", "first", "age", "drift", "path", "outlier")
PROBE_REASON = Column(
    "probe_reason", float, "why it probed: 0 not, 1 first, 2 age, 3 drift, 4 path, 5 outlier"
)
ZERO = torch.tensor(0.0).double()


def filter_normalised(model: Model, weights: Tensor, directions: Tensor) -> Tensor:
    """Return directions [M, D] that move every unit of a model [D] by as much as its own weights.

    All have the length of the weights without biases, so that a step along them is a relative one.
    """
    tensors = model.layout.split(weights.double())
    drawn = model.layout.split(directions.double())
    parts = []
    for name, part in drawn.items():
        if tensors[name].dim() < 2:
            parts.append(torch.zeros_like(part))
            continue
        unit = model.unit_axis % tensors[name].dim()
        axes = [axis - tensors[name].dim() for axis in range(tensors[name].dim()) if axis != unit]
        length = part.norm(dim=axes, keepdim=True)
        scale = tensors[name].norm(dim=axes, keepdim=True) / length
        parts.append(part * torch.where(length > 0, scale, 0.0))
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def relative_sharpness(slices: Tensor) -> Tensor:
    """Return J [...] of `slices` [..., M, m+1] on an even grid with the model in its middle.

    >>> bowl = torch.tensor([[[1.5, 1.0, 1.5], [1.1, 1.0, 1.1]]], dtype=torch.float64)
    >>> round(relative_sharpness(bowl).item(), 6)
    0.3
    """
    middle = slices[..., slices.shape[-1] // 2]
    rise = (slices[..., 0] + slices[..., -1]) / 2 - middle
    level = middle.abs().amax(dim=-1).clamp(min=SMALLEST_LOSS)
    return rise.mean(dim=-1).clamp(min=0) / level


@dataclass(frozen=True, kw_only=True)
class SharpnessProximal(Probing):
    """Pull of strength λ r(Ĵ_k): the paper's rule with an index that repeats."""

    lam: float = number(0.1, "[0, inf)", "(0 switches the pull off)", tuned=Range(1e-4, 1.0))
    """λ, the strength where the response is 1."""
    tau_j: float = number(0.03, "(0, inf)", tuned=Range(0.003, 0.3))
    """τ, the sharpness at which the response is ½; fixed, so that no index leaves its vehicle."""
    directions: int = number(16, "[1, inf]")
    """M"""
    radius: float = number(0.1, "(0, inf)", fixed="what sharpness is measured at")
    """ℓ, relative to the length of the weights."""
    probe_batch: int = number(128, "[1, inf]")
    """Windows; a vehicle with fewer uses all it has."""
    keep: float = number(0.8, "[0, 1)", fixed="a safeguard against noise")
    """β, what a round leaves of the mean over probes; 0 takes the last one alone."""

    begin_timed_as = "probe"
    last_probe = "sharpness_in"
    records: ClassVar[tuple[Column, ...]] = (SHARPNESS, PROBE_LOSS, PULL, PROBED)

    def client_state(self, model: Model) -> Rows:
        """Return m, c, the loss and the round of the last probe; -1: never."""
        state = {"sharpness_sum": ZERO, "sharpness_weight": ZERO, "probe_loss": ZERO}
        return {**state, "sharpness_in": torch.tensor(-1)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Probe the vehicles that are due and set this round's strengths μ_k [P]."""
        return self.probed(client_state, start, self.due(client_state, start))

    def probed(self, client_state: Rows, start: Start, due: Tensor) -> tuple[Rows, Rows]:
        """Probe the vehicles that are `due` [P]; return (client state, plan)."""
        next_state = {name: values.clone() for name, values in client_state.items()}
        rows = due.nonzero().flatten().tolist()
        probed = measured(start, rows, self._slicing(start)) if rows else start.anchor.new_empty(0)
        # Read once what decides: every read waits for a GPU.
        finite = probed.isfinite().tolist()
        rounds = client_state["sharpness_in"].tolist()
        for row, (statistic, loss), is_finite in zip(rows, probed, finite, strict=True):
            if not is_finite[0]:
                continue  # the old index stays where the loss is not finite
            age = start.round - rounds[row] if rounds[row] >= 0 else 1
            left = self.keep**age
            next_state["sharpness_sum"][row] = (
                left * client_state["sharpness_sum"][row] + (1 - left) * statistic
            )
            next_state["sharpness_weight"][row] = (
                left * client_state["sharpness_weight"][row] + 1 - left
            )
            next_state["probe_loss"][row] = loss
            next_state["sharpness_in"][row] = start.round
        weight = next_state["sharpness_weight"]
        index = torch.where(weight > 0, next_state["sharpness_sum"] / weight, 0.0)
        plan = {"sharpness": index, "probe_loss": next_state["probe_loss"], "probed": due}
        return next_state, plan | {"pull": self.lam * index / (index + self.tau_j)}

    def _slicing(self, start: Start) -> Slicing:
        """Return slices at -ℓ, 0 and ℓ, of which J and φ(0) are computed."""
        offsets = torch.tensor([-self.radius, 0.0, self.radius], dtype=torch.float64)
        return Slicing(
            self.directions,
            partial(filter_normalised, start.model),
            offsets.to(start.anchor.device),
            lambda row: start.fixed_batch(row, self.probe_batch, "sharpness batch"),
            lambda slices: torch.stack((relative_sharpness(slices), slices[..., 0, 1]), dim=-1),
        )


@dataclass(frozen=True)
class Trigger:
    """Thresholds and credit of triggered probes; `oldest` is R."""

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
        """Return the state before the first round of a vehicle, whose first probe is paid for."""
        return {"drift": ZERO, "path": ZERO, "alert": ZERO, "bank": ZERO + 1}

    def decided(
        self, state: Rows, last: Tensor, round: int, signs: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Rows, Tensor]:
        """Return (state, place in `REASONS`), each [P]; `last` is the round of the last probe.

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
        # The first known drift is the reference.
        reference = torch.where(probed | (state["drift"] == 0), drift, state["drift"])
        after = {
            "drift": torch.where(drift > 0, reference, state["drift"]),
            "path": torch.where(probed, path, state["path"]),
            "alert": alert,
            "bank": torch.where(probed, (bank - 1).clamp(min=0), bank),
        }
        return after, reason


@dataclass(frozen=True, kw_only=True)
class TriggeredSharpness(SharpnessProximal):
    """The pull by sharpness with triggered probes, which are at most `probe_every` rounds apart."""

    probe_every: int = number(25, "[1, inf]", "round")
    probe_schedule: str = choice("triggered")

    records = (*SharpnessProximal.records, PROBE_REASON)
    server_half = "PathAverage"  # which sends L_t and the typical drift

    @property
    def _trigger(self) -> Trigger:
        return Trigger(oldest=self.probe_every)

    def client_state(self, model: Model) -> Rows:
        """Return the index's state, the trigger's, and the last drift."""
        trigger_state = {f"trigger_{name}": value for name, value in self._trigger.state().items()}
        return super().client_state(model) | trigger_state | {"last_drift": ZERO}

    def uploads(self, model: Model) -> Rows:
        """Return d_k, of which the server takes the median."""
        return {"drift_rate": ZERO}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Probe the vehicles whose signs call for it and set the strengths μ_k [P]."""
        drift = client_state["last_drift"]
        typical = start.broadcast["typical_drift"].flatten()
        odd = torch.where(typical > 0, drift / typical, 0.0)
        state = {name: client_state[f"trigger_{name}"] for name in self._trigger.state()}
        signs = (drift, start.broadcast["path"].flatten(), odd)
        last = client_state[self.last_probe]
        state, reason = self._trigger.decided(state, last, start.round, signs)
        next_state, plan = self.probed(client_state, start, reason > 0)
        next_state |= {f"trigger_{name}": value for name, value in state.items()}
        return next_state, plan | {"probe_reason": reason.double()}

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Keep and upload the drift of this round."""
        assert start.accumulation is not None
        length = torch.linalg.vector_norm(deltas, dim=-1, dtype=torch.float64)
        drift = length / (start.learning_rate * start.accumulation)
        return client_state | {"last_drift": drift}, {"drift_rate": drift}


@dataclass(frozen=True, kw_only=True)
class PathAverage(Average):
    """FedAvg's average; the server also sends the length of the model's path and a usual drift."""

    averages = False
    stale_reason = "drifts of different rounds would be compared as if they were of one"

    def sum_fault(self) -> str:
        """Return the reason why sums will not do."""
        return "the median of drifts needs every vehicle's drift. Use 'si-fedavg'."

    def state(self, model: Model) -> Rows:
        """Return L_t and the median of the last drifts, each [1]; 0: none yet."""
        return {name: torch.zeros(1, dtype=torch.float64) for name in ("path", "typical_drift")}

    def broadcast(self, state: Rows) -> Rows:
        """Return both of them."""
        return state

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + Σ p_k Δ_k, and the length of that step."""
        _, after = super().update({}, weights, replies)
        here = weights.double()
        step = (after.double() - here).norm() / here.norm().clamp(min=1e-30)
        typical = state["typical_drift"]
        if "drift_rate" in replies.uploads:
            typical = replies.uploads["drift_rate"].double().median().reshape(1)
        return {"path": state["path"] + step, "typical_drift": typical}, after
