"""Fit three of a vehicle's parameters to its own measured trips.

One works per second (auxiliaries), one per metre (rolling resistance) and one per unit of energy
(drivetrain losses): together they tell how heavy on energy this vehicle and its use are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedwatt.synthetic.arrays import FloatArray
from fedwatt.synthetic.electrify import Channels, driving_power_w
from fedwatt.synthetic.parameters import VehicleParameters

FITTED = ("auxiliary_w", "rolling_coefficient", "drivetrain losses")
PASSES, DIFFERENCE, LARGEST_STEP = 15, 1e-3, 0.5
# Relative errors are weighted as if absolute: slopes and wind make a few trips very wrong.
SMALL_ERROR = 0.05
LEAST_TRIP_WH = 150.0
# Pulls each factor to 1 about as much as half a trip does; a vehicle may have only a few.
PRIOR = 0.5


def trip_energy_wh(vehicle: VehicleParameters, channels: Channels) -> float:
    """Energy of one trip with the heater and air conditioning that were measured."""
    climate_w = channels["heater_w"] + channels["ac_w"]
    power_w = driving_power_w(vehicle, channels) + climate_w + vehicle.auxiliary_w
    return float(power_w.sum() / 3600)


def with_factors(vehicle: VehicleParameters, factors: FloatArray) -> VehicleParameters:
    """The vehicle with each of `FITTED` multiplied by its factor, [3]."""
    auxiliary, rolling, losses = (float(factor) for factor in factors)
    drivetrain = vehicle.drivetrain
    return replace(
        vehicle,
        auxiliary_w=vehicle.auxiliary_w * auxiliary,
        rolling_coefficient=vehicle.rolling_coefficient * rolling,
        drivetrain=replace(
            drivetrain,
            conversion_loss=min(drivetrain.conversion_loss * losses, 0.9),
            copper_w=drivetrain.copper_w * losses,
            iron_w=drivetrain.iron_w * losses,
        ),
    )


def calibrated(vehicle: VehicleParameters, trips: Sequence[Channels]) -> VehicleParameters:
    """The vehicle that comes closest to the trips' measured `energy_wh` in relative terms.

    Gauss-Newton on the logarithms of the factors, reweighted toward least absolute error.
    """
    true_wh = np.array([float(trip["energy_wh"].sum()) for trip in trips])
    size_wh = np.maximum(np.abs(true_wh), LEAST_TRIP_WH)
    logarithms = np.zeros(len(FITTED))

    def predicted(at: FloatArray) -> FloatArray:
        candidate = with_factors(vehicle, np.exp(at))
        return np.array([trip_energy_wh(candidate, trip) for trip in trips])

    for _ in range(PASSES):
        now_wh = predicted(logarithms)
        slopes = np.stack(
            [
                (predicted(logarithms + DIFFERENCE * axis) - now_wh) / (DIFFERENCE * size_wh)
                for axis in np.eye(len(FITTED))
            ],
            axis=1,
        )
        error = (true_wh - now_wh) / size_wh
        weight = 1 / np.maximum(np.abs(error), SMALL_ERROR)
        curvature = slopes.T @ (weight[:, None] * slopes) + PRIOR * np.eye(len(FITTED))
        downhill = slopes.T @ (weight * error) - PRIOR * logarithms
        step = np.linalg.solve(curvature, downhill)
        logarithms = logarithms + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
    return with_factors(vehicle, np.exp(logarithms))
