"""Selection of VED's vehicles by powertrain, and the powertrain where no file states it.

`ev` battery-electric; `phev` plug-in hybrid, all trips; `phev-electric` only those of its trips in
which the engine never turned; `hev` and `ice` have no pack signals, only driving; `all` is all.
"""

from collections.abc import Iterable

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.telemetry.trip import RawTrip

POWERTRAINS = ("ev", "phev-electric", "phev", "hev", "ice", "all")
TYPES = ("ev", "phev", "hev", "ice")
WITHOUT_PACK_SIGNALS = ("hev", "ice")


def asked_types(powertrain: Iterable[str], *, unlabelled: bool) -> frozenset[str]:
    """Vehicle types that the selection covers.

    >>> sorted(asked_types(("ev", "phev-electric"), unlabelled=False))
    ['ev', 'phev']
    """
    names = (powertrain,) if isinstance(powertrain, str) else tuple(powertrain)
    for name in names:
        if name not in POWERTRAINS:
            raise SettingError(unknown("powertrain", name, POWERTRAINS))
    if not names:
        raise SettingError(f"No powertrain is asked for. Choose among {', '.join(POWERTRAINS)}.")
    if not unlabelled and set(names) <= set(WITHOUT_PACK_SIGNALS):
        raise SettingError(
            f"powertrain {', '.join(names)}: VED records no pack signals for these, so there is no "
            "energy to learn. Ask for unlabelled trips to electrify their driving."
        )
    types = TYPES if "all" in names else (name.removesuffix("-electric") for name in names)
    return frozenset(types)


def electric_trips_only(powertrain: Iterable[str]) -> bool:
    """Return whether a plug-in hybrid gives only the trips its engine took no part in."""
    names = (powertrain,) if isinstance(powertrain, str) else tuple(powertrain)
    return "phev-electric" in names and not {"phev", "all"} & set(names)


def engine_reason(trip: RawTrip) -> str:
    """Return the reason why a hybrid's trip is not all-electric, or "" when it is: engine speed 0
    in every row.
    """
    if not trip.has("engine_rpm"):
        return "engine speed unknown"
    return "engine ran" if np.nanmax(trip.channels["engine_rpm"]) > 0 else ""


def inferred_type(*, pack_rows: int, engine_rows: int) -> str:
    """Type of a vehicle missing from the static files, from which signals it ever sent.

    Pack signals and no engine speed: `ev`; both: `phev`; no pack signals: `ice`, though it may be a
    hybrid, whose pack VED does not record either.

    >>> inferred_type(pack_rows=900, engine_rows=0)
    'ev'
    """
    if not pack_rows:
        return "ice"
    return "phev" if engine_rows else "ev"
