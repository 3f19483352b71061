"""Features of a model, each second: functions of a trip's *input* channels.

A feature is handed the channels it names in `needs`, the seconds since its trip began, and nothing
else; `needs` may only name inputs: no feature can depend on pack voltage, current, energy or state
of charge, nor on position.

Acceleration looks two seconds ahead (see `acceleration`), and so do the features made of it:
specific_power, driving, braking, wheel_drive, wheel_brake and the two squares. The set "causal" has
acceleration and specific_power two seconds late instead, so that no window sees beyond its end. A
streaming predictor forms all features with a delay of `STREAMING_DELAY_S`. All others use the
present second or the past of their channels, at most `MEMORY_S` of it; a channel may itself look
ahead where it is made (grade, ascent and descent are read from positions of the whole trip).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedwatt import plugins
from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.trip import FloatArray, Trip

Inputs = Mapping[str, FloatArray]

STREAMING_DELAY_S = 2
WARM_UP_S = 300.0
CABIN_S = 120.0  # in which a cabin's air warms up; the rest of the car takes WARM_UP_S
TYRES_S = 600.0  # in which tyres and lubricants warm up
MEMORY_S = 62
"""How far a feature may look back: a minute of acceleration, which looks two seconds back."""
SECOND = "second"
COMFORT_LOW_C = 18.0
COMFORT_HIGH_C = 23.0
CLIMB = ("climb_m", "descent_m")
CLIMB_KNOWN = "climb_known"
MAY_BE_UNKNOWN = ("ac_w", "heater_w")
"""Channels in which NaN means "unknown"."""
DRAG_REFERENCE_C = 20.0  # temperature at which the drag feature is the cube of speed
GRAVITY_MPS2 = 9.81
ROLLING = 0.010  # resistance of tyres over weight, of usual cars
AIR = 2.5e-4  # ½ density · drag area / mass, 1/m: 0.65 m² and 1.6 t at the reference temperature
SLOWEST_MPS = 2.0
"""Speed for which a force is computed from a power at any lower speed."""
LARGEST_FORCE_MPS2 = 4.0
LARGEST_BRAKING_W_PER_KG = 60.0
"""Forces and braking beyond these, which faults in recorded speed make, count as these."""
TYPICAL_CLIMB_MPS = 0.25  # of a car on a road that climbs; in VED vehicles' means are 0.16 to 0.33


@dataclass(frozen=True)
class Feature:
    """One column of a client's series: `function(inputs)` gives float64 [seconds].

    `about_zero`: typical size of a feature that is 0 where its channel is unknown, for
    `scaling.about_zero`: the scaled feature must not depend on how often it is unknown. 0 marks an
    ordinary feature.
    """

    unit: str
    needs: tuple[str, ...]
    function: Callable[[Inputs], FloatArray]
    about_zero: float = 0.0

    def __post_init__(self) -> None:
        for channel in self.needs:
            if CHANNELS[channel].role != "input":
                raise SettingError(
                    f"A feature cannot need '{channel}': it is a {CHANNELS[channel].role}, "
                    "and features are made of inputs only."
                )


def acceleration(speed_mps: FloatArray) -> FloatArray:
    """Return the centred difference of a three-second mean of speed, m/s², [seconds].

    That is (v[t+2] + v[t+1] - v[t-1] - v[t-2]) / 6, exact on a ramp; beyond its ends the trip's
    first and last speed are held. Differencing raw 1 Hz speed would mostly show its resolution.

    >>> acceleration(np.array([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 4.0])).round(3)
    array([0.167, 0.5  , 0.833, 1.   , 0.833, 0.5  , 0.167])
    """
    first = speed_mps[:1]
    last = speed_mps[-1:]
    padded: FloatArray = np.concatenate([first, first, speed_mps, last, last])
    return (padded[4:] + padded[3:-1] - padded[1:-3] - padded[:-4]) / 6


def _specific_power(inputs: Inputs) -> FloatArray:
    return inputs["speed_mps"] * acceleration(inputs["speed_mps"])


def _late(function: Callable[[Inputs], FloatArray]) -> Callable[[Inputs], FloatArray]:
    """Return the values of `function` two seconds ago; inputs at the start are held before it."""

    def late(inputs: Inputs) -> FloatArray:
        held = {n: np.pad(x, (STREAMING_DELAY_S, 0), mode="edge") for n, x in inputs.items()}
        return function(held)[:-STREAMING_DELAY_S]

    return late


def _channel(name: str, unit: str, *, about_zero: float = 0.0) -> Feature:
    return Feature(unit, (name,), lambda inputs: inputs[name], about_zero)


def _drag(inputs: Inputs) -> FloatArray:
    # Air density at constant pressure falls as the absolute temperature rises.
    density = (273.15 + DRAG_REFERENCE_C) / (273.15 + inputs["ambient_c"])
    return density * inputs["speed_mps"] ** 3


def _wheel_power(inputs: Inputs) -> FloatArray:
    """Return the power at the wheels of an average car, W/kg: inertia, climb, tyres and air.

    A pack gives more for a watt at the wheels than it gets back for one, so the sign of the sum
    matters, and not only the signs of its terms. A vehicle's model weighs this next to the terms.
    """
    speed = inputs["speed_mps"]
    climb = inputs["climb_m"] - inputs["descent_m"]
    return (
        speed * acceleration(speed) + GRAVITY_MPS2 * (climb + ROLLING * speed) + AIR * _drag(inputs)
    )


def _force_squared(inputs: Inputs) -> FloatArray:
    """Return the square of force over mass at the wheels: windings lose heat by torque squared."""
    force = _wheel_power(inputs) / np.maximum(inputs["speed_mps"], SLOWEST_MPS)
    return np.clip(force, -LARGEST_FORCE_MPS2, LARGEST_FORCE_MPS2) ** 2


def _brake_squared(inputs: Inputs) -> FloatArray:
    """Return the square of braking power: friction brakes take a share that grows with it."""
    return np.clip(_wheel_power(inputs), -LARGEST_BRAKING_W_PER_KG, 0) ** 2


def _cold(inputs: Inputs) -> FloatArray:
    return np.maximum(COMFORT_LOW_C - inputs["ambient_c"], 0)


def _heat(inputs: Inputs) -> FloatArray:
    return np.maximum(inputs["ambient_c"] - COMFORT_HIGH_C, 0)


def _warm_up(inputs: Inputs) -> FloatArray:
    return np.exp(-inputs[SECOND] / WARM_UP_S)


def _climate_power(
    channel: str, discomfort: Callable[[Inputs], FloatArray], steady: float, first: float
) -> Feature:
    """Return the power of a climate device in kW, and the usual power where it is unknown.

    NaN in the channel means that nothing reported the device, which is not off: a heater that no
    logger reads is on in the cold. It stands for `steady` kW per °C of discomfort and `first` more
    while the cabin warms up or cools down.
    """

    def function(inputs: Inputs) -> FloatArray:
        power = inputs[channel] * 1e-3
        unknown_power = np.isnan(power)
        if not unknown_power.any():
            return power
        usual = discomfort(inputs) * (steady + first * _warm_up(inputs))
        return np.where(unknown_power, usual, power)

    # kW, so that a heater that never ran in training is not thousands of units away when it does.
    return Feature("kW", (channel, "ambient_c"), function)


def _cabin_warm_up(inputs: Inputs) -> FloatArray:
    return _cold(inputs) * np.exp(-inputs[SECOND] / CABIN_S)


def _tyre_warm_up(inputs: Inputs) -> FloatArray:
    return inputs["speed_mps"] * np.exp(-inputs[SECOND] / TYRES_S)


_SPEED = ("speed_mps",)
_SPEED_AND_AIR = ("speed_mps", "ambient_c")
_WHEELS = (*_SPEED_AND_AIR, *CLIMB)
_FEATURES: Mapping[str, Feature] = {
    "speed": _channel("speed_mps", "m/s"),
    "acceleration": Feature("m/s²", _SPEED, lambda x: acceleration(x["speed_mps"])),
    "speed_squared": Feature("m²/s²", _SPEED, lambda x: x["speed_mps"] ** 2),
    "speed_cubed": Feature("m³/s³", _SPEED, lambda x: x["speed_mps"] ** 3),
    "specific_power": Feature("W/kg", _SPEED, _specific_power),
    "acceleration_late": Feature("m/s²", _SPEED, _late(lambda x: acceleration(x["speed_mps"]))),
    "specific_power_late": Feature("W/kg", _SPEED, _late(_specific_power)),
    "ambient": _channel("ambient_c", "°C"),
    # Usual powers: the mean over VED's two electric cars that report both.
    "ac": _climate_power("ac_w", _heat, 0.097, 0.032),
    "heater": _climate_power("heater_w", _cold, 0.038, 0.029),
    "drag": Feature("m³/s³", _SPEED_AND_AIR, _drag),
    "driving": Feature("W/kg", _SPEED, lambda x: np.maximum(_specific_power(x), 0)),
    "braking": Feature("W/kg", _SPEED, lambda x: np.minimum(_specific_power(x), 0)),
    "cold": Feature("°C", ("ambient_c",), _cold),
    # Measured heaters are nearly off at 10 °C and full on in frost.
    "cold_squared": Feature("°C²", ("ambient_c",), lambda x: _cold(x) ** 2),
    "heat": Feature("°C", ("ambient_c",), _heat),
    "warm_up": Feature("1", _SPEED, _warm_up),
    "cold_start": Feature("°C", _SPEED_AND_AIR, lambda x: _cold(x) * _warm_up(x)),
    "hot_start": Feature("°C", _SPEED_AND_AIR, lambda x: _heat(x) * _warm_up(x)),
    "cabin_warm_up": Feature("°C", _SPEED_AND_AIR, _cabin_warm_up),
    "tyre_warm_up": Feature("m/s", _SPEED, _tyre_warm_up),
    "cold_tyres": Feature("°C m/s", _SPEED_AND_AIR, lambda x: _cold(x) * _tyre_warm_up(x)),
    "wheel_drive": Feature("W/kg", _WHEELS, lambda x: np.maximum(_wheel_power(x), 0)),
    "wheel_brake": Feature("W/kg", _WHEELS, lambda x: np.minimum(_wheel_power(x), 0)),
    "force_squared": Feature("m²/s⁴", _WHEELS, _force_squared),
    "brake_squared": Feature("W²/kg²", _WHEELS, _brake_squared),
    "grade": _channel("grade", "1"),
    "climb": Feature("m/s", ("speed_mps", "grade"), lambda x: x["speed_mps"] * x["grade"]),
    "ascent": _channel("climb_m", "m/s", about_zero=TYPICAL_CLIMB_MPS),
    "descent": _channel("descent_m", "m/s", about_zero=TYPICAL_CLIMB_MPS),
    CLIMB_KNOWN: _channel(CLIMB_KNOWN, "0/1", about_zero=1.0),
    "speed_limit": _channel("speed_limit_mps", "m/s"),
    "intersection": _channel("intersection", "0/1"),
    "bus_stop": _channel("bus_stop", "0/1"),
    "focus_point": _channel("focus_point", "0/1"),
}


class _Features(dict[str, Feature]):
    """Built-in features by name, and any other by a reference (`fedwatt.plugins`)."""

    def __missing__(self, name: str) -> Feature:
        feature: Feature = plugins.resolve(
            name, "feature", "a Feature", lambda value: isinstance(value, Feature)
        ).value
        return feature


FEATURES: Mapping[str, Feature] = _Features(_FEATURES)

# fmt: off
_BASE = (
    "speed", "acceleration", "speed_squared", "speed_cubed", "specific_power", "ambient", "ac",
    "heater",
)
_ROAD = ("grade", "climb", "speed_limit", "intersection", "bus_stop", "focus_point")
FEATURE_SETS: Mapping[str, tuple[str, ...]] = {
    "base": _BASE,
    # The base features without a look ahead: what a vehicle knows at the end of a window.
    "causal": (
        "speed", "acceleration_late", "speed_squared", "speed_cubed", "specific_power_late",
        "ambient", "ac", "heater",
    ),
    # The terms of road load and cabin climate, one column each; driving and braking apart because
    # a pack gets back only part of what braking frees.
    "physics": (
        "speed", "acceleration", "drag", "driving", "braking", "ambient", "cold", "heat", "ac",
        "heater", "warm_up",
    ),
    "enriched": (*_BASE, *_ROAD),
    # What is known of the road, to add to another set: "causal, road".
    "road": _ROAD,
    # Read from an elevation field (fedwatt.elevation), to add to another set: "base, elevation".
    "elevation": ("ascent", "descent", CLIMB_KNOWN),
    # Power at the wheels by its sign, climb included, a cabin that is cold or hot at the start,
    # tyres that warm up, and losses that grow as squares; to add to other sets: "base, physics,
    # elevation, journey".
    "journey": (
        "wheel_drive", "wheel_brake", "cold_start", "hot_start", "cabin_warm_up", "tyre_warm_up",
        "cold_tyres", "force_squared", "brake_squared",
    ),
}
# fmt: on


def feature_names(recipe: str) -> tuple[str, ...]:
    """Return the features of a comma-separated recipe of feature sets and single features.

    >>> feature_names("base, grade")[-2:]
    ('heater', 'grade')
    """
    names: dict[str, None] = {}
    for word in (piece.strip() for piece in recipe.split(",")):
        if word not in FEATURE_SETS and word not in FEATURES:
            if not plugins.refers(word, "feature"):
                choices = [*FEATURE_SETS, *FEATURES, *plugins.entry_points("feature")]
                raise SettingError(unknown("feature set or feature", word, choices))
            _ = FEATURES[word]  # refuses a reference that leads nowhere
        names.update(dict.fromkeys(FEATURE_SETS.get(word, (word,))))
    return tuple(names)


def needs_climb(features: Iterable[str]) -> bool:
    """Return whether any of these features is made of climb, descent or whether they are known.

    >>> needs_climb(("speed", "ascent")), needs_climb(("speed", "grade"))
    (True, False)
    """
    channels = (*CLIMB, CLIMB_KNOWN)
    return any(channel in channels for name in features for channel in FEATURES[name].needs)


def features_without_elevation(recipe: str) -> str:
    """Return the features of a recipe that are made without climb, as a recipe; "" if none are.

    >>> features_without_elevation("speed, ambient, elevation")
    'speed, ambient'
    """
    return ", ".join(name for name in feature_names(recipe) if not needs_climb([name]))


def physics_features(trips: Sequence[Trip]) -> tuple[str, ...]:
    """Return the physics features that all of these trips have the channels for."""
    return tuple(
        name
        for name in FEATURE_SETS["physics"]
        if all(set(FEATURES[name].needs) <= set(trip.channels) for trip in trips)
    )


def trip_features(trip: Trip, names: tuple[str, ...], vehicle: str) -> FloatArray:
    """Return the features of one trip, float64 [seconds, features].

    A missing channel is refused, not filled: zeros would read as "heater off" or "level road".
    `vehicle` is named in the message.
    """
    needs = {channel: name for name in names for channel in FEATURES[name].needs}
    for channel, name in needs.items():
        if channel not in trip.channels:
            raise DataError(
                f"Vehicle '{vehicle}', trip '{trip.name}' has no channel '{channel}', which "
                f"feature '{name}' needs. Choose features that every vehicle has, by set or by "
                'name (features = "speed, acceleration, ambient").'
            )
        if channel not in MAY_BE_UNKNOWN:
            refuse_gaps(trip, channel, vehicle)
    return feature_columns(trip.channels, names)


def feature_columns(channels: Inputs, names: tuple[str, ...], *, begin: int = 0) -> FloatArray:
    """Return features [seconds, features] of channels that begin at second `begin` of a trip.

    For the last part of a trip, as a stream has it, rows equal those of the complete trip except
    for the first `MEMORY_S`, whose past is cut off, and the last `STREAMING_DELAY_S`.
    """
    since = {SECOND: begin + np.arange(len(channels["speed_mps"]), dtype=np.float64)}
    columns = []
    for feature in (FEATURES[name] for name in names):
        needed = {channel: channels[channel] for channel in feature.needs}
        columns.append(feature.function(needed | since))
    return np.stack(columns, axis=1)


def refuse_gaps(trip: Trip, channel: str, vehicle: str) -> None:
    """Refuse a channel that holds NaN or infinity, naming the first such second."""
    finite = np.isfinite(trip.channels[channel])
    if not finite.all():
        raise DataError(
            f"Vehicle '{vehicle}', trip '{trip.name}': channel '{channel}' is not a finite number "
            f"in {(~finite).sum()} of {len(finite)} samples, first at second {np.argmin(finite)}. "
            "Fill short gaps and cut the trip at long ones before building the fleet."
        )
