"""Duty of a kind of vehicle: driving style, load, stops."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedwatt.synthetic.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Duty:
    """Driving style and load of a kind of vehicle, relative to a passenger car.

    `accelerating` and `braking` multiply a car driver's; `halts` is the share of stops on its way
    at which it halts, for `halt_s` on average.
    """

    top_mps: float = math.inf
    accelerating: float = 1.0
    braking: float = 1.0
    payload_kg: float  # mean over trips
    payload_shape: float  # of a gamma distribution: 1 is exponential, large is steady
    halts: float = 0.0
    halt_s: float = 0.0

    def draw_payload_kg(self, trips: int, rng: np.random.Generator) -> FloatArray:
        """Load of each trip, [trips]."""
        return rng.gamma(self.payload_shape, self.payload_kg / self.payload_shape, trips)


# fmt: off
DUTIES: Mapping[str, Duty] = {
    "passenger": Duty(payload_kg=60.0, payload_shape=1.0),
    "truck": Duty(
        top_mps=90 / 3.6, accelerating=0.6, braking=0.75, payload_kg=900.0, payload_shape=4.0),
    # Passengers stand in a bus.
    "bus": Duty(
        top_mps=80 / 3.6, accelerating=0.55, braking=0.65, payload_kg=1400.0, payload_shape=3.0,
        halts=0.8, halt_s=16.0),
}
# fmt: on
