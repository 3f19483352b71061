"""Which versions of fedwatt work together: a server serves vehicles of its own series and the last.

A series is the first two numbers of a version. The server is updated first, then the vehicles, one
by one, while they train. So that vehicles of the series before can read a question, it leaves out
settings that they do not know and that have their defaults (`settings_before.json`). A setting with
another value is sent, and such a vehicle says that it does not know it.

After a release, the file is written anew from it:

    python -m fedwatt.deploy.versions > fedwatt/deploy/settings_before.json
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, Final

import tomli_w

from fedwatt import __version__
from fedwatt.methods import Method, get
from fedwatt.methods.catalogue import LOCAL_RULES, METHODS, SERVERS
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.server import ServerRule
from fedwatt.runs.config import RunConfig, from_tables, to_tables

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


def told_vehicles(config: RunConfig) -> str:
    """The configuration as questions carry it, for vehicles of this series and the one before."""
    usual, told = to_tables(from_tables({})), to_tables(config)
    known = _known_before()
    for section, table in told.items():
        if isinstance(table, dict) and section in usual:
            told[section] = _readable(table, usual[section], known.get(section, ()))
    told["method"] = [
        _readable(own, get(own["name"]).settings, known["method"]) for own in told["method"]
    ]
    # A section that is new, and all of whose settings have their defaults.
    return tomli_w.dumps({name: own for name, own in told.items() if own != {}})


def _readable(
    table: Mapping[str, Any], usual: Mapping[str, Any], known: list[str] | tuple[str, ...]
) -> dict[str, Any]:
    return {n: v for n, v in table.items() if n in known or n not in usual or v != usual[n]}


@cache
def _known_before() -> dict[str, list[str]]:
    """Names of settings by section that the series before this one knows."""
    text = files("fedwatt.deploy").joinpath("settings_before.json").read_text(encoding="utf-8")
    known: dict[str, list[str]] = json.loads(text)
    return known


def known_settings() -> dict[str, list[str]]:
    """Names of all settings of this version by section, those of methods together."""
    tables = to_tables(from_tables({}))
    known = {name: sorted(own) for name, own in tables.items() if isinstance(own, dict)}
    rules: list[LocalRule | ServerRule | Method] = [*LOCAL_RULES.values(), *SERVERS.values()]
    rules += [get(name) for name in METHODS]
    names = {name for rule in rules for name in _hyperparameters(rule)}
    return known | {"method": sorted(names)}


def _hyperparameters(rule: LocalRule | ServerRule | Method) -> Iterable[str]:
    return rule.settings if isinstance(rule, Method) else (one.name for one in fields(rule))


if __name__ == "__main__":
    print(json.dumps(known_settings(), indent=1))
