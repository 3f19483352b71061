"""Losses between pack and wheels, as a map over speed and force.

Copper losses grow with the square of torque, iron and windage losses with speed, gears and inverter
take a share of the power either way. Efficiency is therefore poor at a crawl and under light load
and best in the middle, and regeneration pays the same losses once more.
"""

from dataclasses import dataclass, fields

import numpy as np

from fedwatt.errors import check
from fedwatt.synthetic.arrays import FloatArray

IRON_AT_MPS = 30.0
IRON_EXPONENT = 1.5  # between hysteresis (1) and eddy currents and windage (2 and more)
STANDING_MPS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Drivetrain:
    """Motor, inverter and gear. Defaults are an 80 kW motor in a compact car."""

    conversion_loss: float = 0.04  # share of the power that gears and inverter lose
    peak_force_n: float = 6400.0  # at the wheels
    copper_w: float = 8000.0  # lost at peak force
    iron_w: float = 900.0  # lost at 30 m/s, whether or not the motor pulls

    def __post_init__(self) -> None:
        for parameter in fields(self):
            check(self, parameter.name, 0 <= getattr(self, parameter.name) < np.inf, "at least 0")
        check(self, "conversion_loss", self.conversion_loss < 1, "in [0, 1)")
        check(self, "peak_force_n", self.peak_force_n > 0, "positive")

    def loss_w(self, wheel_w: FloatArray, speed_mps: FloatArray) -> FloatArray:
        """Power lost when `wheel_w` (+ drives, - brakes) passes at `speed_mps`; all [...]."""
        moving = speed_mps > STANDING_MPS
        force_n = np.divide(wheel_w, speed_mps, out=np.zeros_like(wheel_w), where=moving)
        # A slow stop at the very end of a second would otherwise ask for an absurd force.
        load = np.minimum(np.abs(force_n) / self.peak_force_n, 1.0)
        iron_w = self.iron_w * (np.abs(speed_mps) / IRON_AT_MPS) ** IRON_EXPONENT
        lost_w = self.conversion_loss * np.abs(wheel_w) + self.copper_w * load**2 + iron_w
        return np.where(moving, lost_w, 0.0)

    def efficiency(self, force_n: FloatArray, speed_mps: FloatArray) -> FloatArray:
        """Share of the pack's power that reaches the wheels when driving, [...].

        >>> plain = Drivetrain(conversion_loss=0.25, copper_w=0.0, iron_w=0.0)
        >>> float(plain.efficiency(np.array(100.0), np.array(10.0)))
        0.8
        """
        wheel_w = force_n * speed_mps
        return wheel_w / (wheel_w + self.loss_w(wheel_w, speed_mps))
