"""L3: signals of a vehicle's training beside its roughness, and a screen that uses them.

Unpublished. `fedavg+signals` records these and leaves training as it is, bit for bit; a vehicle's
last round is the last in which its update counted.

transfer        q_k, the share of its last gain that the fleet's model kept (`closed_loop.py`)
alignment       cos(Δ_k, w_t - w_s): whether the fleet moved as the vehicle moved in its last round
                s; below 0 it moves against the fleet: other roads, wrong labels, a flipped sign
turns_against   number of consecutive rounds of the vehicle with an alignment below -0.3
efficiency      ‖Δ_k‖/Σ_h η ‖u_h‖ of its last round: near 1 its steps went straight ahead, near 1/√H
                they were a random walk
noise_scale     S/G², the batch at which a gradient is as much signal as noise

The noise scale (McCandlish et al., arXiv 1812.06162, 2018) of n windows in parts of b, with g_n the
mean of the parts' g_b:

    S  = (mean ‖g_b‖² - ‖g_n‖²) / (1/b - 1/n)    variance of a window's gradient
    G² = (n ‖g_n‖² - b mean ‖g_b‖²) / (n - b)    squared length of the true one

both as exponential means; infinite where G² ≤ 0 (a stationary point). All use training windows, the
same ones in every round, and cost two losses and one gradient of `signal_batch` windows per round,
and a norm per step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.defence import Defence, selected
from fedwatt.methods.experimental.closed_loop import TRANSFER, ZERO, Gains
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.server import Replies
from fedwatt.metrics.rounds import AGAINST, TOO_LONG, TURNS, out_of_line
from fedwatt.models import Model
from fedwatt.settings import number
from fedwatt.tables import Column

KEEP = 0.8
"""β of the two parts of the noise scale."""
ALIGNMENT = Column(
    "alignment", float, "cosine of its last Δ_k and the global model's displacement since"
)
TURNS_AGAINST = Column(
    "turns_against", float, f"consecutive rounds of the vehicle with an alignment below {AGAINST:g}"
)
EFFICIENCY = Column(
    "efficiency", float, "‖Δ_k‖ over the length of its path in its last round: 1 is straight"
)
NOISE_SCALE = Column("noise_scale", float, "B_noise, windows at which noise equals signal")


def noise_parts(small: Tensor, large: Tensor, b: int, n: int) -> tuple[Tensor, Tensor]:
    """Return (S, G²) of mean ‖g_b‖² and ‖g_n‖².

    >>> sample = torch.tensor([1.0, 2.0, 3.0, 6.0])  # gradients of four windows
    >>> parts = noise_parts((sample**2).mean(), sample.mean() ** 2, 1, 4)
    >>> [round(part.item(), 6) for part in parts]  # the sample variance; 3² less a quarter of it
    [4.666667, 7.833333]
    """
    return (small - large) / (1 / b - 1 / n), (n * large - b * small) / (n - b)


@dataclass(frozen=True, kw_only=True)
class Signals(Gains):
    """A local rule that records transfer ratio, alignment, efficiency and noise scale."""

    signal_batch: int = 128
    """n; a vehicle with fewer windows uses all of them, in equal parts."""
    signal_parts: int = number(8, "[2, inf]", ": one has no spread")
    tell_turns: bool = False
    """Whether vehicles upload `turns_against`, which "@screened" uses."""

    measures_path = True
    records = (*(TRANSFER, ALIGNMENT, TURNS_AGAINST, EFFICIENCY, NOISE_SCALE),)

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.signal_batch >= self.signal_parts
        check(self, "signal_batch", enough, f"at least signal_parts={self.signal_parts}")

    def conflict(self, other: LocalRule) -> str:
        """Refuse another rule that records the transfer ratio."""
        if not isinstance(other, Gains):
            return ""
        return f"{type(other).__name__} records the transfer ratio already; leave out Signals."

    def client_state(self, model: Model) -> Rows:
        """Return losses, model and displacement of the last round, and the means of S and G²."""
        still = torch.zeros(model.layout.size)
        noise = {"noise_variance": ZERO, "noise_square": ZERO, "noise_weight": ZERO}
        turn = {"last_anchor": still, "last_move": still, "last_efficiency": ZERO}
        return super().client_state(model) | noise | turn | {"turns_against": ZERO}

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload `turns_against`, if it is uploaded."""
        return {"opposed": ZERO} if self.tell_turns else {}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: the signals of the last round, and the noise scale of this one."""
        client_state, plan = super().begin(client_state, start)
        now = plan["gain_from"]
        alignment = _cosine(client_state["last_move"], start.anchor - client_state["last_anchor"])
        straight = client_state["last_efficiency"]  # 0: not known yet
        against = torch.where(alignment < AGAINST, client_state["turns_against"] + 1, 0.0)
        plan |= {
            "alignment": alignment,
            "turns_against": against,
            "efficiency": torch.where(straight > 0, straight, torch.nan),
        }
        parts = [self._noise(start, row) for row in range(len(start.anchor))]
        has_part = torch.tensor([part is not None for part in parts], device=now.device)
        values = torch.stack([now.new_zeros(2) if part is None else part for part in parts])
        next_state = {"turns_against": against}
        for place, name in enumerate(("noise_variance", "noise_square")):
            mean = KEEP * client_state[name] + (1 - KEEP) * values[:, place]
            next_state[name] = torch.where(has_part, mean, client_state[name])
        weight = KEEP * client_state["noise_weight"] + 1 - KEEP
        next_state["noise_weight"] = torch.where(has_part, weight, client_state["noise_weight"])
        square = next_state["noise_square"]
        scale = torch.where(square > 0, next_state["noise_variance"] / square, torch.inf)
        plan["noise_scale"] = torch.where(next_state["noise_weight"] > 0, scale, torch.nan)
        return client_state | next_state, plan

    def _noise(self, start: Start, row: int) -> Tensor | None:
        """Return (S, G²) [2] of a vehicle at w_t; None with too few windows for the parts."""
        batch = start.fixed_batch(row, self.signal_batch, "signal batch")
        parts = self.signal_parts
        b = len(batch.labels) // self.signal_parts
        if b == 0:
            return None
        windows = batch.windows[: parts * b].reshape(parts, b, *batch.windows.shape[1:])
        labels = batch.labels[: parts * b].reshape(parts, b)
        share = torch.full_like(labels, 1 / b)
        weights = start.origin[row].expand(parts, -1).contiguous()
        gradients = start.model.gradient(weights, windows, labels, share, start.loss).double()
        small = gradients.square().sum(dim=-1).mean()
        large = gradients.mean(dim=0).square().sum()
        return torch.stack(noise_parts(small, large, b, parts * b))

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Store this round's model, displacement and efficiency."""
        client_state, _ = super().finish(client_state, plan, start, deltas)
        length = torch.linalg.vector_norm(deltas, dim=-1, dtype=torch.float64)
        assert start.path is not None
        turn = {"last_anchor": start.anchor, "last_move": deltas}
        uploads = {"opposed": plan["turns_against"]} if self.tell_turns else {}
        return client_state | turn | {
            "last_efficiency": (length / start.path).nan_to_num()
        }, uploads


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosines of rows [P, D], float64; NaN where a row is 0."""
    a, b = a.double(), b.double()
    lengths = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    cosine: Tensor = (a * b).sum(dim=-1) / lengths
    return cosine


@dataclass(frozen=True, kw_only=True)
class Screen(Defence):
    """A defence that drops updates that are too long or against the fleet's direction.

    Unpublished. With l_k = ln(‖Δ_k‖/H_k), the length of an update per step:

        z_k = (l_k - median l) / (1.4826 median |l - median l|)

    Left out are updates with z_k above `screen_z` (scaled or diverging updates, a broken sensor),
    and those of vehicles that have moved against the fleet in `screen_turns` consecutive rounds
    (flipped signs, wrong labels), where vehicles upload that: `+signals` with `tell_turns`. It is
    no defence against an attacker who knows it: an update just below the threshold passes.
    """

    screen_z: float = number(TOO_LONG, "(0, inf)", fixed="what counts as out of line")
    """Robust standard deviations above the median at which an update is too long."""
    screen_turns: int = number(TURNS, "[1, inf]", "turn")
    """Consecutive rounds against the fleet after which a vehicle's update is left out."""

    def screen(self, replies: Replies) -> Replies:
        """Return the updates that pass; all of them if none would."""
        lengths = torch.linalg.vector_norm(replies.deltas, dim=-1, dtype=torch.float64).cpu()
        if replies.steps is not None:
            lengths = lengths / replies.steps.cpu()
        _, z = out_of_line(lengths.numpy())
        good = ~(torch.from_numpy(z) > self.screen_z)
        against = replies.uploads.get("opposed")
        if against is not None:
            good &= against.cpu() < self.screen_turns
        if not good.any():
            return replies
        return selected(replies, good.nonzero().flatten().to(replies.deltas.device))
