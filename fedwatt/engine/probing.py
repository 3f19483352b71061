"""Random draws of the roughness probe: windows per vehicle, directions common to a round."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedwatt.engine.pool import Pool
from fedwatt.methods.rule import Batch
from fedwatt.models import Model
from fedwatt.randomness import generator


@dataclass(frozen=True)
class Probes:
    """The draws of a stack in one round; a vehicle is known by its row."""

    pool: Pool
    places: Sequence[int]  # of the vehicles in the pool
    names: Sequence[str]  # of the vehicles
    runs: Sequence[int]  # that they train in
    seeds: tuple[int, ...]
    round: int
    model: Model

    def batch(self, row: int, size: int, purpose: str) -> Batch:
        """At most `size` of the vehicle's training windows, drawn for `purpose` in this round."""
        return self._drawn(row, size, purpose, self.round)

    def fixed_batch(self, row: int, size: int, purpose: str) -> Batch:
        """At most `size` of the vehicle's training windows, the same in every round."""
        return self._drawn(row, size, purpose)

    def _drawn(self, row: int, size: int, purpose: str, *keys: int) -> Batch:
        place = self.places[row]
        windows = self.pool.train
        count = windows.count(place)
        rng = generator(self.seeds[self.runs[row]], purpose, *keys, self.names[row])
        chosen = rng.choice(count, size=min(size, count), replace=False)
        index = torch.from_numpy(chosen + windows.offsets[place]).to(windows.starts.device)
        return Batch(self.pool.gather(windows.starts[index]), windows.labels[index])

    def directions(self, row: int, count: int) -> Tensor:
        """`count` directions [count, D], the same for all vehicles of a run."""
        seed = self.seeds[self.runs[row]]
        device = self.pool.series.device
        return drawn_directions(seed, self.round, count, self.model.layout.size, device)


@lru_cache(maxsize=8)
def drawn_directions(seed: int, round: int, count: int, size: int, device: torch.device) -> Tensor:
    """Return standard normal directions [count, size] of a round, float64; not to be written to.

    They are common to all vehicles and methods, so those that train side by side share the draw.
    """
    normal = generator(seed, "probe directions", round).standard_normal((count, size))
    return torch.from_numpy(normal).to(device)
