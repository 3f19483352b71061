"""IFCA: the server keeps several models, and each vehicle trains the one that fits it best.

Ghosh et al., NeurIPS 2020, averaging models. With centres c_1 .. c_J on the server,

    vehicle   j_k = argmin_j F_k(c_j) on a batch of its training windows, the same for all j (of
              equals the first);  its steps begin at c_{j_k}, and so does every pull
    server    c_j ← c_j + Σ_{k: j_k = j} (n_k / Σ n) Δ_k;  a centre that nobody chose stays

Where the centres begin matters. Drawn at random, as published, the one that is ahead after the
first round may be the choice of all from then on, which is FedAvg. Ours part after a few rounds of
FedAvg: from then on c_1 is that model and the others lie at a small distance from it.

w_t, by which global tables go, is the centre that had most windows so far. A vehicle drives with
the centre that it would choose now. All J models go down; Δ_k and the choice go up, and under masks
J blocks of which all but one are 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError, check
from fedwatt.methods.rule import LocalRule, Origin, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, moved, weighted_sum
from fedwatt.models import MLP, Model
from fedwatt.settings import number
from fedwatt.tables import Column

CENTRE: Final = Column("centre", float, "the server's model that the vehicle chose, from 0 (IFCA)")


@dataclass(frozen=True, kw_only=True)
class ChooseCentre(LocalRule):
    """The vehicle's part."""

    centres: int = number(2, "[1, inf]", "(1 is FedAvg)")
    """J; 1 is FedAvg."""
    choice_batch: int = number(1024, "[1, inf]", "window")
    """Training windows that a vehicle chooses by; one with fewer uses all it has."""

    records: ClassVar[tuple[Column, ...]] = (CENTRE,)

    def uploads(self, model: Model) -> Rows:
        """1 at the centre that it chose."""
        return {"choice": torch.zeros(self.centres, dtype=torch.bool)}

    def server_half(self) -> type[object]:
        """Return the server that keeps the centres."""
        return Centres

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules with client state: the state would belong to the centre of an earlier
        round.
        """
        if not other.client_state(MLP(1, 1, (1,))):
            return ""
        return (
            f"{type(other).__name__} remembers what it learned of one model, and a vehicle may "
            "choose another centre in the next round. Leave it out."
        )

    def origin(self, client_state: Rows, start: Start) -> Origin:
        """Return the centre that each vehicle chooses."""
        centres = _centres(start)
        chosen = self._choice(start)
        choice = torch.nn.functional.one_hot(chosen, self.centres).bool()
        plan = {"centre": chosen.double(), "choice": choice}
        return Origin(_picked(centres, chosen), plan, torch.zeros_like(start.steps))

    def vehicle_model(self, client_state: Rows, start: Start) -> Tensor:
        """Return the centre that it would choose now."""
        return _picked(_centres(start), self._choice(start))

    def _choice(self, start: Start) -> Tensor:
        """j_k [P]; a centre whose loss is not a number loses."""
        centres = _centres(start)
        chosen = []
        for row, vehicle_centres in enumerate(centres):
            batch = start.probe_batch(row, self.choice_batch, "centre batch")
            predicted = start.model.predict(
                vehicle_centres, batch.windows.expand(len(vehicle_centres), -1, -1, -1)
            )
            errors = start.loss(predicted, batch.labels.expand_as(predicted))
            losses = errors.double().mean(dim=-1).nan_to_num(nan=inf)
            # Products may round equal centres to different losses: the first stands for its likes.
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
    """The server's part."""

    centres: int = number(2, "[1, inf]", "(1 is FedAvg)")
    warm_rounds: int = number(5, "[0, inf]")
    """Rounds of FedAvg before there are several centres."""
    centre_spread: float = number(0.05, "[0, inf)", fixed="where centres begin, not how they move")
    """σ, how far from the first the others begin, over its length; 0: drawn as it was."""

    local_half: ClassVar[type[LocalRule]] = ChooseCentre
    sum_limits: ClassVar[Mapping[str, float]] = {"choice": 1.0}
    adds_up: ClassVar[bool] = True  # each centre moves by a sum of its own
    stale_reason: ClassVar[str] = (
        "a reply to older centres may have chosen what is another centre by now"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        apart = self.centre_spread > 0 or not self.warm_rounds
        check(self, "centre_spread", apart, "above 0 after warm_rounds, such as 0.05")

    def contribution_size(self, model: Model) -> int:
        """J blocks."""
        return self.centres * model.layout.size

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Δ_k in the block of the centre that it belongs to, 0 in the others."""
        return (uploads["choice"].to(delta)[:, None] * delta).flatten()

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Each centre's own mean, and of these the longest, so that a limit holds for all."""
        share = uploads["choice"] / weight
        blocks = delta.view(self.centres, -1) / weight
        steps = torch.where(share[:, None] > 0, blocks / share[:, None], 0.0)
        longest = steps[steps.norm(dim=-1).argmax()]
        return longest, {"choice": share, "centre_steps": steps}

    def state(self, model: Model) -> Rows:
        """Return the centres [J, D], the windows that chose each so far [J], which is w_t, and
        rounds.
        """
        return {
            "centres": torch.zeros(self.centres, model.layout.size, dtype=torch.float64),
            "windows": torch.zeros(self.centres, dtype=torch.float64),
            "place": torch.zeros(1, dtype=torch.int64),
            "rounds": torch.zeros(1, dtype=torch.int64),
        }

    def begin(
        self, model: Model, weights: Tensor, draws: Callable[[int], np.random.Generator]
    ) -> Rows:
        """w_0 first; the others drawn as it was or at a distance from it, or like it at first."""
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
        """Weights [D] at the distance σ‖w‖ from those given, in a random direction."""
        noise = torch.from_numpy(rng.standard_normal(len(weights))).to(weights)
        return weights + self.centre_spread * float(weights.norm() / noise.norm()) * noise

    def broadcast(self, state: Rows) -> Rows:
        """Return the centres but w_t, which goes down by itself, in their order, and its place."""
        centres = state["centres"]
        place = state["place"]
        numbers = torch.arange(self.centres, device=centres.device)
        order = (numbers == place).long().argsort(dim=-1, stable=True)[..., : self.centres - 1]
        index = order[..., None].expand(*order.shape, centres.shape[-1])
        return {"other_centres": centres.gather(-2, index), "place": place}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Every centre moves by the mean of those that chose it."""
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
            # Of equal centres vehicles choose the first, so this is FedAvg until they part.
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
    """All centres [P, J, D], from w_t and the others that were sent."""
    other_centres = start.broadcast["other_centres"]
    place = start.broadcast["place"]
    all_centres = torch.cat([other_centres, start.anchor[:, None]], dim=1)
    numbers = torch.arange(all_centres.shape[1], device=all_centres.device)
    shifted = torch.where(numbers > place, numbers - 1, numbers)
    order = torch.where(numbers == place, all_centres.shape[1] - 1, shifted)
    return all_centres.gather(1, order[..., None].expand(*order.shape, all_centres.shape[-1]))


def _picked(centres: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen ones [P, D] of the centres [P, J, D]."""
    return centres[torch.arange(len(chosen), device=chosen.device), chosen]
