"""Which versions of fedwatt work together: a server serves vehicles of its own series and the last.

A series is the first two numbers of a version. The server is updated first, then the vehicles, one
by one, while they train; `runs.earlier` keeps questions readable for those that are not updated.
"""

from typing import Final

from fedwatt import __version__

BEFORE: Final = ""
"""The series before this one; empty: there was none."""


def series(version: str) -> str:
    """The series of a version.

    >>> series("0.1.0")
    '0.1'
    """
    return ".".join(version.split(".")[:2])


def version_fault(vehicle: str, server: str = __version__, before: str = BEFORE) -> str:
    """Why a server cannot serve a vehicle with this version on board; empty if it can.

    >>> version_fault("0.1.9", "0.3.0", "0.2")
    'it has fedwatt 0.1.9 on board, and this server (0.3.0) serves 0.3 and 0.2: update the vehicle'
    """
    served = [one for one in (series(server), before) if one]
    if series(vehicle) in served:
        return ""
    newer = _numbers(vehicle) > _numbers(server)
    what = "update the server first" if newer else "update the vehicle"
    about = f"it has fedwatt {vehicle[:40]} on board, and this server ({server})"
    return f"{about} serves {' and '.join(served)}: {what}"


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version's series; those that are none count as 0."""
    return tuple(int(n) if n.isdecimal() else 0 for n in series(version).split("."))
