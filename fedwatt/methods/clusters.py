"""IFCA: the server has several models, and each vehicle trains the one that fits it best.

Ghosh et al., NeurIPS 2020, arXiv 2006.04088, averaging models. With centres c_1 .. c_J on the
server,

    vehicle   j_k = argmin_j F_k(c_j)      on one batch of its training windows
    server    c_j ← c_j + Σ_{k: j_k = j} (n_k / Σ n) Δ_k

Of equals the first is chosen. The vehicle's steps begin at c_{j_k}, and so does every pull; a
centre that no vehicle chose stays. The start of the centres matters. With random centres, as
published, all vehicles may choose the centre that is better after the first round, which is FedAvg.
Here centres separate after a few rounds of FedAvg: c_1 is then that model, and the others lie at a
small distance from it.

The model of global tables, w_t, is the centre chosen by most windows so far. A vehicle uses the
centre that it would choose now. The server sends all J models; a vehicle uploads Δ_k and its
choice, or for secure aggregation J blocks of which all but one are 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError, check
from fedwatt.methods.rule import LocalRule, Origin, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, moved, weighted_sum
from fedwatt.models import MLP, Model
from fedwatt.settings import number
from fedwatt.tables import Column

CENTRE = Column("centre", float, "the server's model that the vehicle chose, from 0 (IFCA)")


@dataclass(frozen=True, kw_only=True)
class ChooseCentre(LocalRule):
    """IFCA's local rule: choose a centre and start from it."""

    centres: int = number(2, "[1, inf]", "(1 is FedAvg)")
    """J; 1 is FedAvg."""
    choice_batch: int = number(1024, "[1, inf]", "window")
    """Training windows for the choice; a vehicle with fewer uses all of them."""

    records = (CENTRE,)
    server_half = "Centres"

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload, the one-hot choice [J]."""
        return {"choice": torch.zeros(self.centres, dtype=torch.bool)}

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules with client state, which would belong to an earlier round's centre."""
        if not other.client_state(MLP(1, 1, (1,))):
            return ""
        return (
            f"{type(other).__name__} has client state of one model, and a vehicle may choose "
            "another centre in the next round. Leave it out."
        )

    def origin(self, client_state: Rows, start: Start) -> Origin:
        """Return the centre that each vehicle chooses."""
        centres = _centres(start)
        chosen = self._choice(start)
        choice = torch.nn.functional.one_hot(chosen, self.centres).bool()
        plan = {"centre": chosen.double(), "choice": choice}
        return Origin(_picked(centres, chosen), plan, torch.zeros_like(start.steps))

    def vehicle_model(self, client_state: Rows, start: Start) -> Tensor:
        """Return the centre that each vehicle would choose now."""
        return _picked(_centres(start), self._choice(start))

    def _choice(self, start: Start) -> Tensor:
        """Return j_k [P]; a loss that is not a number counts as infinite."""
        centres = _centres(start)
        chosen = []
        for row, vehicle_centres in enumerate(centres):
            batch = start.probe_batch(row, self.choice_batch, "centre batch")
            predicted = start.model.predict(
                vehicle_centres, batch.windows.expand(len(vehicle_centres), -1, -1, -1)
            )
            errors = start.loss(predicted, batch.labels.expand_as(predicted))
            losses = errors.double().mean(dim=-1).nan_to_num(nan=inf)
            # Products may round differently for equal centres: these get the loss of the first.
            first = [
                next(
                    (i for i in range(j) if torch.equal(vehicle_centres[i], vehicle_centres[j])), j
                )
                for j in range(len(vehicle_centres))
            ]
            chosen.append(losses[first].argmin())
        return torch.stack(chosen)


@dataclass(frozen=True, kw_only=True)
class Centres(ServerRule):
    """IFCA's server rule."""

    centres: int = number(2, "[1, inf]", "(1 is FedAvg)")
    warm_rounds: int = number(5, "[0, inf]")
    """Rounds of FedAvg before there are several centres."""
    centre_spread: float = number(0.05, "[0, inf)", fixed="the start of the centres")
    """σ, initial distance of other centres from the first, relative to its length; 0: random."""

    local_half = ChooseCentre
    sum_limits: ClassVar[Mapping[str, float]] = {"choice": 1.0}
    adds_up = True  # each centre moves by a separate sum
    stale_reason = "an update of older centres may belong to a centre that has changed since"

    def __post_init__(self) -> None:
        super().__post_init__()
        apart = self.centre_spread > 0 or not self.warm_rounds
        check(self, "centre_spread", apart, "above 0 after warm_rounds, such as 0.05")

    def contribution_size(self, model: Model) -> int:
        """Return the length of J blocks."""
        return self.centres * model.layout.size

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return J blocks: Δ_k in that of the chosen centre, 0 in the others."""
        return (uploads["choice"].to(delta)[:, None] * delta).flatten()

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Return the longest of the centres' mean updates, which limits check, and all of them."""
        share = uploads["choice"] / weight
        blocks = delta.view(self.centres, -1) / weight
        steps = torch.where(share[:, None] > 0, blocks / share[:, None], 0.0)
        longest = steps[steps.norm(dim=-1).argmax()]
        return longest, {"choice": share, "centre_steps": steps}

    def state(self, model: Model) -> Rows:
        """Return centres [J, D], windows that chose each [J], the place of w_t, and rounds."""
        return {
            "centres": torch.zeros(self.centres, model.layout.size, dtype=torch.float64),
            "windows": torch.zeros(self.centres, dtype=torch.float64),
            "place": torch.zeros(1, dtype=torch.int64),
            "rounds": torch.zeros(1, dtype=torch.int64),
        }

    def begin(
        self, model: Model, weights: Tensor, draws: Callable[[int], np.random.Generator]
    ) -> Rows:
        """Return the centres of round 0: w_0, and copies or random models."""
        initial_others = [weights] * (self.centres - 1)
        if not self.warm_rounds:
            initial_others = [self._drawn(model, weights, draws(j)) for j in range(1, self.centres)]
        centres = torch.stack([weights, *initial_others]).double().cpu()
        return self.state(model) | {"centres": centres}

    def _drawn(self, model: Model, weights: Tensor, rng: np.random.Generator) -> Tensor:
        if self.centre_spread:
            return self._beside(weights, rng)
        drawn = model.initial(rng).to(weights)
        if torch.equal(drawn, weights):
            raise SettingError(
                "IFCA's centres must differ, and this network begins with the same weights every "
                "time. Set centre_spread = 0.05, or give a class or function that makes it."
            )
        return drawn

    def _beside(self, weights: Tensor, rng: np.random.Generator) -> Tensor:
        """Return weights [D] at the distance σ‖w‖ from `weights`, in a random direction."""
        noise = torch.from_numpy(rng.standard_normal(len(weights))).to(weights)
        return weights + self.centre_spread * float(weights.norm() / noise.norm()) * noise

    def broadcast(self, state: Rows) -> Rows:
        """Return the centres other than w_t in their order, and the place of w_t."""
        centres = state["centres"]
        place = state["place"]
        numbers = torch.arange(self.centres, device=centres.device)
        order = (numbers == place).long().argsort(dim=-1, stable=True)[..., : self.centres - 1]
        index = order[..., None].expand(*order.shape, centres.shape[-1])
        return {"other_centres": centres.gather(-2, index), "place": place}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Move every centre by the mean update of the vehicles that chose it."""
        centres = state["centres"].clone()
        choice = replies.uploads["choice"].double()
        for j in range(self.centres):
            rows = choice[:, j].nonzero().flatten()
            if not len(rows):
                continue
            if "centre_steps" in replies.uploads:
                step = replies.uploads["centre_steps"][0, j]
            else:
                windows = replies.windows[rows]
                step = weighted_sum(windows / windows.sum(), replies.deltas[rows])
            centres[j] = moved(centres[j].to(weights.dtype), step).double()
        rounds = state["rounds"] + 1
        if rounds[0] <= self.warm_rounds:
            # Of equal centres vehicles choose the first, so this is FedAvg until they separate.
            assert isinstance(replies.rng, np.random.Generator)
            for j in range(1, self.centres):
                apart = rounds[0] == self.warm_rounds
                first_centre = centres[0].to(weights.dtype)
                centres[j] = (
                    self._beside(first_centre, replies.rng) if apart else first_centre
                ).double()
        windows = state["windows"] + (replies.windows[:, None] * choice).sum(dim=0)
        place = windows.argmax().reshape(1)
        after = {"centres": centres, "windows": windows, "place": place, "rounds": rounds}
        return after, centres[place[0]].to(weights.dtype)


def _centres(start: Start) -> Tensor:
    """Return all centres [P, J, D], from w_t and the others of the broadcast."""
    other_centres = start.broadcast["other_centres"]
    place = start.broadcast["place"]
    all_centres = torch.cat([other_centres, start.anchor[:, None]], dim=1)
    numbers = torch.arange(all_centres.shape[1], device=all_centres.device)
    shifted = torch.where(numbers > place, numbers - 1, numbers)
    order = torch.where(numbers == place, all_centres.shape[1] - 1, shifted)
    return all_centres.gather(1, order[..., None].expand(*order.shape, all_centres.shape[-1]))


def _picked(centres: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen centre [P, D] of each vehicle."""
    return centres[torch.arange(len(chosen), device=chosen.device), chosen]
