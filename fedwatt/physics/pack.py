"""The simplest pack that has a voltage: an open-circuit voltage behind a resistance."""

import numpy as np

from fedwatt.errors import DataError
from fedwatt.physics.arrays import FloatArray
from fedwatt.physics.parameters import VehicleParameters


def open_circuit_v(vehicle: VehicleParameters, soc: FloatArray) -> FloatArray:
    """Open-circuit voltage, linear in the state of charge."""
    return vehicle.pack_empty_v + (vehicle.pack_full_v - vehicle.pack_empty_v) * soc


def pack_current_a(power_w: FloatArray, open_v: FloatArray, resistance_ohm: float) -> FloatArray:
    """Current that delivers `power_w` at the terminals, + = discharge.

    Solves power = (open_v - R·I)·I for the smaller root, which is the stable one.

    >>> pack_current_a(np.array([3900.0, -4100.0]), np.array([400.0, 400.0]), 1.0)
    array([ 10., -10.])
    """
    inside = open_v**2 - 4 * resistance_ohm * power_w
    if np.any(inside < 0):
        raise DataError(
            f"The pack cannot deliver {np.max(power_w):.0f} W through {resistance_ohm:.3g} ohm "
            f"at {np.min(open_v):.0f} V. Lower the power or the resistance."
        )
    return 2 * power_w / (open_v + np.sqrt(inside))
