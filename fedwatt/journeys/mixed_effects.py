"""Mixed effects by least absolute deviations, federated: the fleet's coefficients from sums.

    y = xᵀ(β₀ + β_v) · s_v + σ(x) ε        β_v ~ N(0, diag τ²)        ε of mean absolute value b

Trips t of vehicle v are weighted by w = 1 / (σ² b² max(|r| / b, ε₀)), which makes least squares of
the absolute deviations (Schlossmacher, JASA 68, 1973), with r = (y - ŷ) / σ. With A = s² XᵀWX and
a = s XᵀWy, the vehicle's own part is β_v = C (a - A β₀), C = (A + diag τ⁻²)⁻¹, and what is left for
the fleet's are sums that add over vehicles:

    Σ (A - A C A) β₀ = Σ (a - A C a)

A vehicle iterates β_v and s_v by itself and uploads these sums, Σ|r|, the number of its trips, log
s_v and β_v² + diag C, from which the server computes β₀, b and τ² (expectation-maximisation). β_v
and s_v never leave the vehicle. Columns are divided by `unit`, their root mean square, so that all
start with the same τ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.errors import RunError
from fedwatt.metrics.sums import LARGEST, Fields
from fedwatt.telemetry.trip import FloatArray

EXCHANGES = 12
ON_BOARD = 6
"""Reweightings in the vehicle before it uploads."""
SMALLEST = 0.3
"""ε₀: residuals below so many b weigh alike."""
RIDGE = 1e-3
SCALE_SPREAD = 0.2
LEAST_SPREAD = 0.02
"""Of τ to begin with, which is the most as well: 17 spreads that may grow as they like learn the
trips of a small fleet by heart, and errors of trips left out then look too small."""
FOLDS = 50
"""Errors of up to so many trips are each those of a fit without it; of more, without every 50th."""
LEAST_NOISE = 0.5
"""Of τ to begin with. Few trips are met by their many coefficients without any error, and b would
fall to nothing, and with it all that holds a vehicle to the fleet."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Trips of one vehicle: features [trips, p], what is to be predicted [trips], and σ [trips]."""

    x: FloatArray
    y: FloatArray
    sigma: FloatArray


@dataclass(frozen=True, eq=False)
class FleetEffects:
    """The fleet's effects; arrays [p] for columns x / unit.

    unit    size of a column
    mean    β₀
    spread  τ
    noise   b; 0 before anything is known
    """

    unit: FloatArray
    mean: FloatArray
    spread: FloatArray
    noise: float


@dataclass(frozen=True, eq=False)
class VehicleEffects:
    """Effects of one vehicle beside the fleet's: β_v [p] for x / unit, s_v, C [p, p], weights."""

    beta: FloatArray
    scale: float
    covariance: FloatArray
    weights: FloatArray


def predict(fleet: FleetEffects, vehicle: VehicleEffects, x: FloatArray) -> FloatArray:
    """Return xᵀ(β₀ + β_v) s_v, [trips]."""
    return x / fleet.unit @ (fleet.mean + vehicle.beta) * vehicle.scale


def unit_sums(trips: Observations) -> dict[str, FloatArray]:
    """Return Σ (x / σ)² and Σ x of each column, Σ y, the number of trips, and whether there are
    any.
    """
    squares = ((trips.x / trips.sigma[:, None]) ** 2).sum(axis=0)
    count = np.array([float(len(trips.y))])
    return {
        "squares": squares,
        "columns": trips.x.sum(axis=0),
        "total": np.array([trips.y.sum()]),
        "trips": count,
        "vehicles": np.minimum(count, 1.0),
    }


def vehicle_effects(fleet: FleetEffects, trips: Observations) -> VehicleEffects:
    """Return β_v and s_v of a vehicle from its own trips; 0 and 1 without trips."""
    z = trips.x / fleet.unit
    columns = len(fleet.unit)
    beta = np.zeros(columns)
    scale = 1.0
    covariance = np.diag(fleet.spread**2)
    weights = 1 / trips.sigma**2
    for _ in range(ON_BOARD if fleet.noise and len(trips.y) else 0):
        residual = (trips.y - z @ (fleet.mean + beta) * scale) / trips.sigma
        far = np.maximum(np.abs(residual) / fleet.noise, SMALLEST)
        weights = 1 / ((trips.sigma * fleet.noise) ** 2 * far)
        a, right = _normal(z * scale, trips.y, weights)
        covariance = np.linalg.inv(a + np.diag(fleet.spread**-2.0)).astype(np.float64)
        beta = covariance @ (right - a @ fleet.mean)
        fitted = z @ (fleet.mean + beta)
        prior = SCALE_SPREAD**-2
        weighed = weights * fitted
        scale = float((weighed @ trips.y + prior) / (weighed @ fitted + prior))
    return VehicleEffects(beta, scale, covariance, weights)


def _normal(z: FloatArray, y: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    weighed = z * weights[:, None]
    return weighed.T @ z, weighed.T @ y


def vehicle_equations(
    fleet: FleetEffects, vehicle: VehicleEffects, trips: Observations
) -> tuple[FloatArray, FloatArray]:
    """Return a vehicle's part of the equations for β₀: A − A C A and a − A C a, C = (A + P)⁻¹.

    With P = diag τ⁻² and W^½ X s τ = U S Vᵀ these are

        L (S² / (1 + S²)) Lᵀ  and  L (S / (1 + S²)) Uᵀ W^½ y,    L = diag τ⁻¹ V

    which is never below 0, however much the trips say.
    """
    z = trips.x / fleet.unit * vehicle.scale
    root = np.sqrt(vehicle.weights)
    if not fleet.noise:
        return _normal(z, trips.y, vehicle.weights)
    u, s, v = np.linalg.svd(root[:, None] * z * fleet.spread, full_matrices=False)
    left = v.T / fleet.spread[:, None]
    return left * (s**2 / (1 + s**2)) @ left.T, left * (s / (1 + s**2)) @ (u.T @ (root * trips.y))


def effect_sums(fleet: FleetEffects, trips: Observations) -> dict[str, FloatArray]:
    """Return a vehicle's contribution, given the fleet's effects; zeros if it has no trips."""
    vehicle = vehicle_effects(fleet, trips)
    a, right = vehicle_equations(fleet, vehicle, trips)
    residual = (trips.y - predict(fleet, vehicle, trips.x)) / trips.sigma
    count = np.array([float(len(trips.y))])
    taught = np.minimum(count, 1.0)
    return {
        "matrix": a[np.triu_indices(len(a))],
        "right": right,
        "absolute": np.array([np.abs(residual).sum()]),
        "trips": count,
        "scale": np.array([np.log(vehicle.scale)]),
        "effects": taught * (vehicle.beta**2 + np.diag(vehicle.covariance)),
        "vehicles": taught,
    }


def sum_fields(columns: int) -> Fields:
    """Return the names and sizes of `effect_sums`."""
    triangle = columns * (columns + 1) // 2
    return _fields(matrix=triangle, right=columns, absolute=1, trips=1, scale=1, effects=columns)


def unit_fields(columns: int) -> Fields:
    """Return the names and sizes of `unit_sums`."""
    return _fields(squares=columns, columns=columns, total=1, trips=1)


def _fields(**sizes: int) -> Fields:
    return {name: (size, LARGEST) for name, size in sizes.items()} | {"vehicles": (1, 1.0)}


Total = Callable[[Mapping[str, FleetEffects]], Mapping[str, Mapping[str, FloatArray]]]
"""The vehicles' sums by target, given what the fleet knows of each; of `unit_sums` at first, when
it knows nothing."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fleet's effects, and the last equations for β₀: matrix [p, p] and right side [p]."""

    effects: FleetEffects
    matrix: FloatArray
    right: FloatArray


def fit(total: Total, columns: int, spreads: Mapping[str, float]) -> dict[str, Fitted]:
    """Return the fleet's effects by target, from the same exchanges; `spreads` are τ to begin
    with.
    """
    fitted = {}
    for target, first in total({}).items():
        unit = np.sqrt(first["squares"] / max(first["trips"][0], 1.0)) + 1e-12
        fleet = FleetEffects(unit, np.zeros(columns), np.full(columns, spreads[target]), 0.0)
        fitted[target] = Fitted(fleet, np.zeros((columns, columns)), np.zeros(columns))
    for exchange in range(EXCHANGES):
        totals = total({target: target_fit.effects for target, target_fit in fitted.items()})
        for target, sums in totals.items():
            fitted[target] = _fitted(fitted[target].effects, sums, exchange, spreads[target])
    return fitted


def _fitted(
    fleet: FleetEffects, sums: Mapping[str, FloatArray], exchange: int, spread: float
) -> Fitted:
    """Return the fleet's effects, estimated again from the sums of one exchange.

    `spread` bounds the noise b and the spreads τ.
    """
    columns = len(fleet.unit)
    right = sums["right"]
    _refuse_impossible(sums, columns)
    a = np.zeros((columns, columns))
    a[np.triu_indices(columns)] = sums["matrix"]
    a = a + np.triu(a, 1).T
    vehicles = max(sums["vehicles"][0], 1.0)
    mean = solved(a, right) * np.exp(sums["scale"][0] / vehicles)
    # The first sums are of plain least squares, whose residuals nobody knows yet.
    mean_residual = float(sums["absolute"][0] / max(sums["trips"][0], 1.0))
    noise = max(mean_residual, LEAST_NOISE * spread) if exchange else spread
    if exchange > EXCHANGES // 3:
        spread_v = np.sqrt(np.maximum(sums["effects"], 0.0) / vehicles)
        fleet = replace(fleet, spread=np.clip(spread_v, LEAST_SPREAD * spread, spread))
    return Fitted(replace(fleet, mean=mean, noise=noise), a, right)


def _refuse_impossible(sums: Mapping[str, FloatArray], columns: int) -> None:
    """Raise unless sums of squares and of absolute values are at least 0, but for roundings."""
    diagonal = np.cumsum([0, *range(columns, 1, -1)])
    squares = {"matrix": sums["matrix"][diagonal], "absolute": sums["absolute"]}
    squares |= {name: sums[name] for name in ("effects", "trips", "vehicles")}
    for name, values in squares.items():
        if values.min() < -1e-3:
            raise RunError(
                f"A sum for routes, '{name}', is {values.min():g}, which cannot be. One of the "
                "vehicles is at fault, and secure aggregation hides which."
            )


def solved(a: FloatArray, right: FloatArray) -> FloatArray:
    """Return β₀ of the equations, with a small ridge for collinear columns."""
    columns = len(right)
    ridge = RIDGE * np.trace(a) / columns * np.eye(columns)
    return np.linalg.solve(a + ridge + 1e-12 * np.eye(columns), right)


def left_out(fleet: FleetEffects, trips: Observations) -> FloatArray:
    """Return leave-one-trip-out (β₀ + β_v) s_v [trips, p] for columns x / unit.

    That is so if `fleet` has not seen the vehicle: β_v and s_v are learned anew from the others.
    """
    coefficients = np.zeros(trips.x.shape)
    fold = np.arange(len(trips.y)) % FOLDS
    for out in range(min(FOLDS, len(trips.y))):
        included = fold != out
        other_trips = Observations(trips.x[included], trips.y[included], trips.sigma[included])
        effects = vehicle_effects(fleet, other_trips)
        coefficients[~included] = (fleet.mean + effects.beta) * effects.scale
    return coefficients
