"""Turn the recorded trips of one vehicle into usable ones, from that vehicle's data alone.

Order, glitches, gaps, resample, select: every stage maps a trip to its parts and an account. A trip
that fails is dropped with its reason and never stops the vehicle; of a trip that was cut into
useless parts the cause of the cuts is the reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from fedwatt.telemetry.channels import CHANNELS
from fedwatt.telemetry.cleaning import Cleaning
from fedwatt.telemetry.cleaning.account import GAP, Account
from fedwatt.telemetry.cleaning.glitches import (
    implausible,
    without_false_climate,
    without_glitches,
    without_still_elevation,
)
from fedwatt.telemetry.cleaning.resample import energy_source, resample
from fedwatt.telemetry.cleaning.segments import cut_at_gaps, in_order
from fedwatt.telemetry.trip import UNLABELLED, RawTrip, Trip, Vehicle


def clean_vehicle(
    vehicle: Vehicle,
    trips: Iterable[RawTrip],
    cleaning: Cleaning,
    *,
    electric: bool = True,
    already: Account | None = None,
) -> tuple[Vehicle | None, Account]:
    """Return the vehicle with its usable trips; None when too few are left or its numbers make no
    sense.

    `electric` says that nothing but the pack moves it. `already` is the account of what happened to
    its rows before; the returned account, which is also among its facts, includes it.
    """
    parts: list[Trip] = []
    trips, climate_account = without_false_climate(list(trips), vehicle.kind)
    trips, elevation_account = without_still_elevation(trips)
    accounts = [_beyond_limits(trips), climate_account, elevation_account]
    seen = Counter[str]()
    for raw in trips:
        cleaned, account = clean_trip(raw, cleaning)
        accounts.append(account)
        # A number used again on another day continues the letters but is a recording of its own.
        recording = part_name(raw.name, seen[raw.name])
        for part in cleaned:
            numbered = part_name(raw.name, seen[raw.name])
            parts.append(replace(part, name=numbered, recording=recording))
            seen[raw.name] += 1
    parts, filled = _with_fallbacks(parts)
    account = Account.total([already or Account(), *accounts, filled])
    least = cleaning.minimum_trips
    if len({part.recording for part in parts}) < least:
        reason = f"under {least} usable trips" if least > 1 else "without a usable trip"
    else:
        reason = implausible(parts, electric=electric)
    if reason:
        return None, _all_dropped(account, reason)
    account += Account.of("kept", "vehicles", 1)
    label = "soc" if cleaning.charge_only else "energy_wh"
    labelled = all(label in part.channels for part in parts)
    labels = vehicle.labels if labelled else UNLABELLED
    facts = {**vehicle.facts, "account": account.to_json()}
    return replace(vehicle, trips=tuple(parts), labels=labels, facts=facts), account


def _beyond_limits(trips: Sequence[RawTrip]) -> Account:
    """Account for channels without any reading within their limits: most likely a wrong unit."""
    accounts = []
    for name in dict.fromkeys(name for trip in trips for name in trip.channels):
        read = np.concatenate([trip.channels[name] for trip in trips if name in trip.channels])
        read, limits = read[np.isfinite(read)], CHANNELS[name]
        if len(read) and not ((read >= limits.low) & (read <= limits.high)).any():
            allowed = f"{limits.low:g} to {limits.high:g} {limits.unit}".removesuffix(" 1")
            reason = f"{name} is {read.min():g} to {read.max():g}, outside {allowed}"
            accounts.append(Account.of("dropped", "channels", 1, reason))
    return Account.total(accounts)


def part_name(trip: str, part: int) -> str:
    """Return the name of the n-th usable part of a trip.

    >>> [part_name("706", part) for part in (0, 1, 2, 30)]
    ['706', '706b', '706c', '706-31']
    """
    if part == 0:
        return trip
    return trip + chr(ord("a") + part) if part < 26 else f"{trip}-{part + 1}"


def clean_trip(trip: RawTrip, cleaning: Cleaning) -> tuple[list[Trip], Account]:
    """Return the usable parts of a trip, all with its name, and an account of the cleaning."""
    account = Account.of("read", "trips", 1) + Account.of("read", "rows", trip.rows)
    if reason := _unusable(trip, cleaning):
        account += Account.of("dropped", "trips", 1, reason)
        return [], account + Account.of("dropped", "rows", trip.rows, reason)
    parts = []
    reasons = Counter[str]()
    kept_rows = 0
    ordered, ordered_account = in_order(trip)
    accounts = [account, ordered_account]
    for part in ordered:
        believed, believed_account = without_glitches(part, cleaning.maximum_gap_s)
        accounts.append(believed_account)
        for stretch in believed:
            if reason := _unusable(stretch, cleaning):
                reasons[reason] += stretch.rows
                continue
            pieces, cut_account = cut_at_gaps(stretch, cleaning)
            accounts.append(cut_account)
            for piece in pieces:
                cleaned, reason = _sampled(piece, cleaning)
                if cleaned is None:
                    reasons[reason] += piece.rows
                else:
                    parts.append(cleaned)
                    kept_rows += piece.rows
    if not parts:
        reasons = _by_cause(trip, reasons, Account.total(accounts), cleaning)
    for reason, rows in reasons.items():
        accounts.append(Account.of("dropped", "rows", rows, reason))
    if parts:
        seconds = sum(part.seconds for part in parts)
        kept_counts = {"trips": 1, "parts": len(parts), "rows": kept_rows, "seconds": seconds}
        accounts += [Account.of("kept", unit, count) for unit, count in kept_counts.items()]
    else:
        # The reason that took most of its rows stands for the whole trip.
        worst = next(iter(dict(reasons.most_common(1))), "nothing left after cleaning")
        accounts.append(Account.of("dropped", "trips", 1, worst))
    return parts, Account.total(accounts)


def _by_cause(
    trip: RawTrip, reasons: Counter[str], account: Account, cleaning: Cleaning
) -> Counter[str]:
    """Return the reasons, with what cut the trip in the place of parts that are too short or
    empty.
    """
    short = (f"under {cleaning.minimum_seconds:g} s", "no speed")
    cause = cause_of_cuts(trip, account, cleaning)
    if not cause or not (reasons.keys() <= set(short)):
        return reasons
    return Counter({cause: reasons.total()})


def _unusable(trip: RawTrip, cleaning: Cleaning) -> str:
    if not trip.has("speed_mps"):
        return "no speed"
    if cleaning.charge_only and not trip.has("soc"):
        return "no state of charge"
    if not (cleaning.unlabelled or cleaning.charge_only or energy_source(trip)):
        missing = [name for name in ("voltage_v", "current_a") if not trip.has(name)]
        return f"no pack {' and '.join(name.split('_')[0] for name in missing)}"
    return ""


def _sampled(piece: RawTrip, cleaning: Cleaning) -> tuple[Trip | None, str]:
    if piece.time_s[-1] - piece.time_s[0] < max(cleaning.minimum_seconds, 1e-3):
        return None, f"under {cleaning.minimum_seconds:g} s"
    channels = resample(piece)
    start_time_s = piece.clock_s + float(piece.time_s[0])
    trip = Trip(piece.name, channels, start_time_s=start_time_s)
    if trip.metres < cleaning.minimum_metres:
        return None, f"under {cleaning.minimum_metres:g} m"
    return trip, ""


def _with_fallbacks(parts: list[Trip]) -> tuple[list[Trip], Account]:
    """Give every trip the inputs a model always sees.

    A trip without outside temperature takes the median of the vehicle's other trips. Air
    conditioning and heater that a trip never reports are unknown, NaN, which is not off.
    """
    accounts = []
    for name, channel in CHANNELS.items():
        if channel.fallback is None:
            continue
        recorded = [part.channels[name] for part in parts if name in part.channels]
        missing = len(parts) - len(recorded)
        if not missing:
            continue
        value = channel.fallback
        how = "unknown" if np.isnan(value) else f"taken as {value:g}"
        if name == "ambient_c" and recorded:
            value = float(np.median(np.concatenate(recorded)))
            how = "taken from the vehicle's other trips"
        parts = [
            replace(part, channels={name: np.full(part.seconds, value), **part.channels})
            for part in parts
        ]
        accounts.append(Account.of("repaired", "parts", missing, f"no {name}, {how}"))
    return parts, Account.total(accounts)


def _all_dropped(account: Account, reason: str) -> Account:
    """Return the account of a vehicle that is left out for `reason`, which is counted once: with
    it.
    """
    entries = {key: number for key, number in account.entries.items() if key[0] != "kept"}
    left_out = Account(entries) + Account.of("dropped", "vehicles", 1, reason)
    for unit in ("trips", "rows"):
        kept_count = account.count("kept", unit)
        left_out += Account.of("dropped", unit, kept_count, "of vehicles left out")
    return left_out


MANY = 0.2
"""Share of a channel's readings, or of a trip's rows, that make the trip useless."""
ROWS_BRIDGED = 2.5
"""A gap up to this many usual intervals was recorded well enough: one or two rows are missing."""


def cause_of_cuts(trip: RawTrip, account: Account, cleaning: Cleaning) -> str:
    """Return what cut a recorded trip into useless parts; "" if it was too short already.

    `account` is that of its cleaning. The most specific cause comes first.
    """
    time_s = trip.time_s[np.isfinite(trip.time_s)]
    if not len(time_s) or np.ptp(time_s) < cleaning.minimum_seconds:
        return ""
    return next(_causes(trip, account, cleaning))


def _causes(trip: RawTrip, account: Account, cleaning: Cleaning) -> Iterator[str]:
    essentials = {name: trip.channels[name] for name in ("speed_mps", *energy_source(trip))}
    for name, values in essentials.items():
        limits = CHANNELS[name]
        if np.nanmean(values < limits.low) > MANY:
            yield f"{name} mostly below {limits.low:g} {limits.unit}"
        if np.nanmean(values > limits.high) > MANY:
            yield f"{name} mostly above {limits.high:g} {limits.unit}"
    readings = {f"readings of {name}": values for name, values in essentials.items()}
    for what, values in {"rows": trip.time_s, **readings}.items():
        apart = np.diff(np.unique(trip.time_s[np.isfinite(values) & np.isfinite(trip.time_s)]))
        usual = float(np.median(apart)) if len(apart) else 0.0
        if usual > cleaning.maximum_gap_s:
            cure = f"--max-gap {ceil(ROWS_BRIDGED * usual)} bridges them"
            yield f"{what} about {usual:.0f} s apart, {GAP} {cleaning.maximum_gap_s:g} s ({cure})"
    for reason, rows in account.reasons("dropped", "rows").items():
        if rows > MANY * trip.rows and ("stuck" in reason or "frozen" in reason):
            yield reason
    yield f"in parts under {cleaning.minimum_seconds:g} s between gaps"
