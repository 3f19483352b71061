"""Take out readings that cannot be true, and refuse vehicles with a wrong unit or sign.

* outside the limits of `channels.CHANNELS`, or an outside temperature of exactly -40 °C;
* pack voltage under half or over one and a half times the trip's median;
* a position at exactly 0°, 0° (receiver without a fix), or one that jumps faster than 100 m/s;
* elevation that stays the same for over 2 km of driving, or in every trip: the logger repeats a
  number;
* heater or air conditioning of a car above 15 kW, or constant at kilowatts in all of its driving;
* speed that changes faster than 12 m/s² and comes back within 5 s: the readings between are taken
  out; if it does not come back the trip is cut there, since either side may be the wrong one;
* a frozen bus: moving, yet neither speed nor current takes a new value for `maximum_gap_s`; the
  rows are taken out, which cuts the trip, because nothing was really recorded;
* a stuck sensor: speed above 0 unchanged for 300 s, or current unchanged for 60 s while speed
  varies by more than 5 m/s.

On the 23 electric and plug-in cars of VED the limits on positions, speed and current touch no good
data: the hardest real braking is 8 m/s², cruise control holds one speed for 105 s at most, and the
current of a moving car stands still for 45 s at most.

A wrong unit passes every check on single readings, yet ruins a model. Three facts reveal it:
distance by speed must agree with distance by position, no vehicle spends a twentieth of the time
above 180 km/h, and driving takes energy out of the pack.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedwatt.telemetry.channels import CHANNELS, POSITION
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.resample import forward_filled, updates, usual_hold_s
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, RawTrip, Trip

ACCELERATION_LIMIT_MPS2 = 12.0
POSITION_LIMIT_MPS = 100.0
OBD_NONE_C = -40.0
"""What the code 0 of an OBD temperature stands for: no sensor, or no reading yet."""
LEAST_STEP_S = 1.0
SPIKE_S = 5.0
STALE_START_S = 30.0
STUCK_SPEED_S = 300.0
STUCK_CURRENT_S = 60.0
STUCK_CURRENT_SPEED_SPAN_MPS = 5.0
METRES_PER_DEGREE = 111_195.0
FROZEN_ELEVATION_M = 2_000.0
LONGEST_STEP_S = 10.0
CLIMATE = ("ac_w", "heater_w")
CAR_CLIMATE_W = 15_000.0
STEADY_S = 1_800.0
STEADY_W = 1_000.0
STEADY_SHARE = 0.25
"""Spread of a steady power, from the 5th to the 95th percentile, over its median."""


def without_glitches(trip: RawTrip, maximum_gap_s: float) -> tuple[list[RawTrip], Account]:
    """Return the trip without impossible readings, cut where the speed is not to be believed."""
    trip, account = _within_limits(trip)
    trip, position_account = _without_position_jumps(trip)
    trip, elevation_account = _without_frozen_elevation(trip)
    trip, frozen_account = _without_frozen_rows(trip, maximum_gap_s)
    parts, speed_account = _without_speed_jumps(trip)
    accounts = (account, position_account, elevation_account, frozen_account, speed_account)
    return parts, Account.total(accounts)


def _within_limits(trip: RawTrip) -> tuple[RawTrip, Account]:
    wrong: dict[str, tuple[BoolArray, str]] = {}
    for name, values in trip.channels.items():
        channel = CHANNELS[name]
        # A comparison with NaN is false, so missing readings are not counted as wrong.
        outside = (values < channel.low) | (values > channel.high)
        reason = f"{name} outside {channel.low:g} to {channel.high:g} {channel.unit}"
        if name == "voltage_v" and (believed := values[~outside & np.isfinite(values)]).size:
            middle = np.median(believed)
            outside |= (values < 0.5 * middle) | (values > 1.5 * middle)
            reason = "voltage_v far from the trip's median"
        if name == "ambient_c":
            outside |= values == OBD_NONE_C
            reason += f", or {OBD_NONE_C:g}: no sensor"
        wrong[name] = outside, reason
    accounts = [
        Account.of("repaired", "values", int(rows.sum()), reason) for rows, reason in wrong.values()
    ]
    nowhere = np.zeros(trip.rows, dtype=bool)
    if all(name in trip.channels for name in POSITION):
        nowhere = np.all([trip.channels[name] == 0 for name in POSITION], axis=0)
        accounts.append(
            Account.of("repaired", "values", int(nowhere.sum()), "position without a fix")
        )
    masks = {n: rows | nowhere if n in POSITION else rows for n, (rows, _) in wrong.items()}
    return _without(trip, masks), Account.total(accounts)


def _without(trip: RawTrip, wrong: Mapping[str, BoolArray]) -> RawTrip:
    """Return the trip without the readings of each channel that are wrong, [rows]."""
    return trip.with_channels(
        {n: np.where(rows, np.nan, trip.channels[n]) for n, rows in wrong.items() if rows.any()}
    )


def jumps(
    time_s: FloatArray, step: FloatArray, limit: float, hold_s: float
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return spikes (first wrong update, next right one) and one-sided jumps (the update after).

    `step` [updates - 1] is the signed change to each next update. Its time is clipped to 1 s and
    `hold_s`: rows can follow each other within 0.1 s although the sensor was read a second ago, and
    a car that stood still did not take its standing time to accelerate.
    """
    taken_s = np.clip(np.diff(time_s), LEAST_STEP_S, max(LEAST_STEP_S, hold_s))
    fast = np.flatnonzero(np.abs(step) > limit * taken_s)
    spikes = []
    lone = []
    i = 0
    while i < len(fast):
        to = int(fast[i]) + 1
        if i + 1 < len(fast):
            back = int(fast[i + 1]) + 1
            opposite = step[fast[i]] * step[fast[i + 1]] < 0
            if opposite and time_s[back] - time_s[to] <= SPIKE_S:
                spikes.append((to, back))
                i += 2
                continue
        lone.append(to)
        i += 1
    return spikes, lone


def _without_speed_jumps(trip: RawTrip) -> tuple[list[RawTrip], Account]:
    rows = np.flatnonzero(np.isfinite(trip.channels["speed_mps"]))
    speed = trip.channels["speed_mps"][rows]
    if len(rows) < 2:
        return [trip], Account()
    new = updates(speed)
    hold_s = usual_hold_s(trip.time_s[rows], new)
    rows = rows[new]
    wrong, lone = _jumped(trip, rows, np.diff(speed[new]), ACCELERATION_LIMIT_MPS2, hold_s)
    account = Account.of("repaired", "values", int(wrong.sum()), "spike in speed_mps")
    account += Account.of("repaired", "trips", len(lone), "cut where speed jumped")
    return _without(trip, {"speed_mps": wrong}).cut(rows[lone]), account


def _without_position_jumps(trip: RawTrip) -> tuple[RawTrip, Account]:
    if not all(trip.has(name) for name in POSITION):
        return trip, Account()
    latitude, longitude = (trip.channels[name] for name in POSITION)
    located = np.flatnonzero(np.isfinite(latitude) & np.isfinite(longitude))
    if len(located) < 2:
        return trip, Account()
    fixes = updates(latitude[located], longitude[located])
    hold_s = usual_hold_s(trip.time_s[located], fixes)
    rows = located[fixes]
    north_m = np.diff(latitude[rows]) * METRES_PER_DEGREE
    east_m = np.diff(longitude[rows]) * METRES_PER_DEGREE * np.cos(np.radians(latitude[rows[0]]))
    # A spike comes back the way it went, so the sign along the larger axis tells there from back.
    away = np.where(np.abs(north_m) > np.abs(east_m), north_m, east_m)
    step_m = np.copysign(np.hypot(north_m, east_m), away)
    wrong, lone = _jumped(trip, rows, step_m, POSITION_LIMIT_MPS, hold_s)
    # The receiver often starts with the place where it was switched off.
    stale = rows[
        [to for to in lone if trip.time_s[rows[to]] <= trip.time_s[rows[0]] + STALE_START_S]
    ]
    wrong[: max(stale, default=0)] = True
    account = Account.of("repaired", "values", int(wrong.sum()), "position jumped")
    return _without(trip, dict.fromkeys(POSITION, wrong)), account


def _jumped(
    trip: RawTrip, rows: IntArray, step: FloatArray, limit: float, hold_s: float
) -> tuple[BoolArray, list[int]]:
    """Return the rows within spikes [rows], and the updates after one-sided jumps.

    `rows` [updates] are those at which the channel takes a new value, `step` [updates - 1] changes.
    """
    spikes, lone = jumps(trip.time_s[rows], step, limit, hold_s)
    wrong = np.zeros(trip.rows, dtype=bool)
    for first, after in spikes:
        wrong[rows[first] : rows[after]] = True
    return wrong, lone


def _without_frozen_elevation(trip: RawTrip) -> tuple[RawTrip, Account]:
    """Return the trip without readings of elevation that stand still while the vehicle drives."""
    if not (trip.has("elevation_m") and trip.has("speed_mps")):
        return trip, Account()
    elevation = trip.channels["elevation_m"]
    rows = np.flatnonzero(np.isfinite(elevation))
    driven_m = _driven_m(trip)
    starts = rows[updates(elevation[rows])]
    stops = np.append(starts[1:], trip.rows)
    length_m = np.repeat(driven_m[stops] - driven_m[starts], stops - starts)
    frozen = np.zeros(trip.rows, dtype=bool)
    frozen[starts[0] :] = length_m > FROZEN_ELEVATION_M
    if not frozen.any():
        return trip, Account()
    reason = f"elevation_m the same for over {FROZEN_ELEVATION_M / 1000:g} km"
    account = Account.of("repaired", "values", int(frozen[rows].sum()), reason)
    return _without(trip, {"elevation_m": frozen}), account


def _driven_m(trip: RawTrip) -> FloatArray:
    """Return the distance driven before each row and after the last, [rows + 1]."""
    speed = forward_filled(trip.channels["speed_mps"])
    steps_s = np.clip(np.diff(trip.time_s, append=trip.time_s[-1]), 0.0, LONGEST_STEP_S)
    return np.concatenate(([0.0], np.cumsum(speed * steps_s)))


def without_still_elevation(trips: Sequence[RawTrip]) -> tuple[list[RawTrip], Account]:
    """Return a vehicle's trips without an elevation that never changes within any of them."""
    read = [trip for trip in trips if trip.has("elevation_m") and trip.has("speed_mps")]
    moves = any(np.nanmin(h) < np.nanmax(h) for h in (t.channels["elevation_m"] for t in read))
    driven_m = sum(float(np.nan_to_num(_driven_m(trip)[-1])) for trip in read)
    if moves or driven_m <= FROZEN_ELEVATION_M:
        return list(trips), Account()
    reason = "elevation_m never changes within a trip"
    believed = [
        _without(trip, {"elevation_m": np.ones(trip.rows, dtype=bool)})
        if trip.has("elevation_m")
        else trip
        for trip in trips
    ]
    return believed, Account.of("dropped", "channels", 1, reason)


def without_false_climate(trips: Sequence[RawTrip], kind: str) -> tuple[list[RawTrip], Account]:
    """Return a vehicle's trips without powers of heater and air conditioning that cannot be true.

    A car's are below `CAR_CLIMATE_W`. A channel that stands at kilowatts in all of the driving
    measures something else and goes as a whole. What is left out is unknown, not off.
    """
    accounts = []
    trips = list(trips)
    for name in CLIMATE:
        read = [trip for trip in trips if trip.has(name)]
        if not read:
            continue
        watts = np.concatenate([trip.channels[name] for trip in read])
        low_w, middle_w, high_w = np.nanquantile(watts, (0.05, 0.5, 0.95))
        seconds = sum(float(np.ptp(trip.time_s[np.isfinite(trip.time_s)])) for trip in read)
        limit_w = CAR_CLIMATE_W if kind == "passenger" else CHANNELS[name].high
        if seconds >= STEADY_S and low_w >= STEADY_W and high_w - low_w < STEADY_SHARE * middle_w:
            limit_w = -np.inf
            reason = f"{name} stands at {middle_w / 1000:.1f} kW in all trips"
            accounts.append(Account.of("dropped", "channels", 1, reason))
        else:
            reason = f"{name} above {limit_w / 1000:g} kW"
            accounts.append(Account.of("repaired", "values", int((watts > limit_w).sum()), reason))
        trips = [
            _without(trip, {name: trip.channels[name] > limit_w}) if trip.has(name) else trip
            for trip in trips
        ]
    return trips, Account.total(accounts)


def _without_frozen_rows(trip: RawTrip, maximum_gap_s: float) -> tuple[RawTrip, Account]:
    if not trip.has("speed_mps"):
        return trip, Account()
    time_s = trip.time_s
    speed = forward_filled(trip.channels["speed_mps"])
    standing, length_s = _runs(time_s, (speed,), maximum_gap_s)
    reasons = {"speed_mps stuck": standing & (length_s > STUCK_SPEED_S) & (speed > 0)}
    if trip.has("current_a"):
        current = forward_filled(trip.channels["current_a"])
        standing, length_s = _runs(time_s, (speed, current), maximum_gap_s)
        frozen = standing & (length_s > maximum_gap_s) & (speed > 0)
        reasons["speed and current frozen while moving"] = frozen
        standing, length_s = _runs(time_s, (current,), maximum_gap_s)
        starts = np.flatnonzero(~standing)
        span = np.maximum.reduceat(speed, starts) - np.minimum.reduceat(speed, starts)
        driving = np.repeat(span, np.diff(np.r_[starts, trip.rows])) > STUCK_CURRENT_SPEED_SPAN_MPS
        reasons["current_a stuck"] = standing & (length_s > STUCK_CURRENT_S) & driving
    drop = np.zeros(trip.rows, dtype=bool)
    accounts = []
    for reason, rows in reasons.items():
        accounts.append(Account.of("dropped", "rows", int((rows & ~drop).sum()), reason))
        drop |= rows
    return (trip.take(~drop) if drop.any() else trip), Account.total(accounts)


def _runs(
    time_s: FloatArray, columns: tuple[FloatArray, ...], maximum_gap_s: float
) -> tuple[BoolArray, FloatArray]:
    """Return whether a row only repeats the one before, and how long its run was recorded. Both
    [rows].

    A gap ends a run: what was not recorded did not stand still.

    >>> _runs(np.arange(4.0), (np.array([1.0, 2.0, 2.0, 2.0]),), 10.0)
    (array([False, False,  True,  True]), array([0., 2., 2., 2.]))
    """
    repeats = np.ones(len(time_s), dtype=bool)
    repeats[updates(*columns)] = False
    repeats[1:] &= np.diff(time_s) <= maximum_gap_s
    starts = np.flatnonzero(~repeats)
    stops = np.r_[starts[1:], len(time_s)]
    length_s = time_s[stops - 1] - time_s[starts]
    return repeats, np.repeat(length_s, stops - starts)


# What a wrong unit does to distance by speed; real cars lie within 7 %.
SWAPS = {
    "m/s read as km/h": 1 / 3.6,
    "m/s read as mph": 1 / 2.237,
    "mph read as km/h": 1 / 1.609,
    "km/h read as mph": 1.609,
    "mph read as m/s": 2.237,
    "km/h read as m/s": 3.6,
}
SWAP_WITHIN = 0.15
RATIO_LOW = 0.72
RATIO_HIGH = 1.35
RATIO_LEAST_M = 2_000.0
FAST_MPS = 50.0
FAST_SHARE = 0.05
SIGN_LEAST_M = 5_000.0
SIGN_WH_PER_KM = -20.0


def implausible(trips: Sequence[Trip], *, electric: bool) -> str:
    """Return the reason why these trips cannot be right, or "" when nothing speaks against them.

    `electric` says that nothing but the pack moves the vehicle, so that its net energy has a sign.
    No vehicle's own number is in the text, so that a fleet counts vehicles of one fault together.
    """
    # Positions first: they tell which unit it is, while too fast may be mph as well as km/h.
    ratio = _speed_over_position(trips)
    if ratio is not None and not RATIO_LOW <= ratio <= RATIO_HIGH:
        return _other_unit(ratio)
    speed = np.concatenate([trip.channels["speed_mps"] for trip in trips])
    if (speed > FAST_MPS).mean() > FAST_SHARE:
        return (
            f"over {FAST_SHARE:.0%} of speeds above {FAST_MPS:g} m/s "
            "(is speed in km/h read as m/s?)"
        )
    metres = sum(trip.metres for trip in trips)
    if electric and metres >= SIGN_LEAST_M and all("energy_wh" in t.channels for t in trips):
        wh_per_km = sum(float(t.channels["energy_wh"].sum()) for t in trips) / (metres / 1000)
        if wh_per_km < SIGN_WH_PER_KM:
            return "driving charges the pack (is the sign of current or power the other way round?)"
    return ""


def _other_unit(ratio: float) -> str:
    """Return the mix-up of units that explains `ratio`, distance by speed over distance by
    position.

    >>> _other_unit(0.63)
    'distance by speed about 0.62 times distance by position (is speed in mph read as km/h?)'
    """
    for swap, factor in SWAPS.items():
        if abs(ratio / factor - 1) < SWAP_WITHIN:
            times = f"about {factor:.2f} times"
            return f"distance by speed {times} distance by position (is speed in {swap}?)"
    return "distance by speed far from distance by position (is the unit of speed another?)"


def _speed_over_position(trips: Sequence[Trip]) -> float | None:
    by_speed = 0.0
    by_position = 0.0
    for trip in trips:
        if "latitude_deg" not in trip.channels or trip.seconds < 2:
            continue
        latitude = trip.channels["latitude_deg"]
        longitude = trip.channels["longitude_deg"]
        east = np.diff(longitude) * np.cos(np.radians(latitude[0]))
        metres = np.hypot(np.diff(latitude), east) * METRES_PER_DEGREE
        by_speed += float(trip.channels["speed_mps"][1:].sum())
        by_position += float(metres.sum())
    enough = max(by_speed, by_position) >= RATIO_LEAST_M and by_position > 0
    return by_speed / by_position if enough else None
