"""The vehicles of a federation: their names, how many windows they have, and who is held out."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import SettingError
from fedwatt.windows import Fleet


@dataclass(frozen=True, eq=False)
class Members:
    """A vehicle is its place in `fleet`, of which no data is read."""

    fleet: Fleet
    evaluate_vehicles: int  # as in `Training`
    mean_windows: float = 0.0
    """Mean n_k, where masks hide what single vehicles have; 0: they do not."""

    def __post_init__(self) -> None:
        if not len(self.population):
            raise SettingError("All vehicles are held out, so none can train. Lower held_out.")

    @cached_property
    def population(self) -> NDArray[np.int64]:
        """The vehicles that may train, K of them."""
        return np.flatnonzero(~self.fleet.held_out)

    @cached_property
    def population_windows(self) -> float:
        """n, the training windows of all of them."""
        if self.mean_windows:
            return self.mean_windows * len(self.population)
        return float(self.fleet.windows("train"))

    @cached_property
    def evaluated(self) -> list[int]:
        """The vehicles that models are evaluated by."""
        return self.fleet.sample(self.evaluate_vehicles)

    def name(self, vehicle: int) -> str:
        """Return the name that keys the vehicle's random draws."""
        return self.fleet.name(vehicle)

    def windows(self, vehicle: int) -> int:
        """n_k, its training windows."""
        return self.fleet.train_windows(vehicle)

    def held_out(self, vehicle: int) -> bool:
        """Return whether it is only ever tested."""
        return bool(self.fleet.held_out[vehicle])
