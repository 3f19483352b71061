"""A configuration as the series of versions before this one can read it.

A new version brings new settings. Where these have their defaults they are left out of what
vehicles are told, of a real fleet's config.toml and of the hash that a run is known by: so vehicles
that are not updated yet understand a question, and a run goes on after an update and after a
rollback. A setting with another value is kept; an earlier version says that it does not know it.

`settings_before.json` names the settings of the series before. After a release it is written anew:

    python -m fedwatt.runs.earlier > fedwatt/runs/settings_before.json
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

import tomli_w

from fedwatt.methods import get
from fedwatt.methods.catalogue import LOCAL_RULES, METHODS, SERVERS
from fedwatt.runs.config import RunConfig, from_tables, to_tables


def earlier_toml(config: RunConfig) -> str:
    """The configuration without settings that are new and have their defaults."""
    usual, told, known = to_tables(from_tables({})), to_tables(config), settings_before()
    for section, table in told.items():
        if isinstance(table, dict) and section in usual:
            told[section] = _readable(table, usual[section], known.get(section, ()))
    told["method"] = [
        _readable(table, get(table["name"]).settings, known["method"]) for table in told["method"]
    ]
    # A section that is new, and all of whose settings have their defaults, is empty.
    return tomli_w.dumps({name: own for name, own in told.items() if own != {}})


def _readable(
    table: Mapping[str, Any], usual: Mapping[str, Any], known: Sequence[str]
) -> dict[str, Any]:
    return {n: v for n, v in table.items() if n in known or n not in usual or v != usual[n]}


@cache
def settings_before() -> dict[str, list[str]]:
    """Names of settings by section that the series before this one knows."""
    text = files("fedwatt.runs").joinpath("settings_before.json").read_text(encoding="utf-8")
    known: dict[str, list[str]] = json.loads(text)
    return known


def known_settings() -> dict[str, list[str]]:
    """Names of all settings of this version by section, those of methods together."""
    tables = to_tables(from_tables({}))
    known = {name: sorted(own) for name, own in tables.items() if isinstance(own, dict)}
    names = {one.name for rule in LOCAL_RULES.values() for one in fields(rule)}
    names |= {one.name for rule in SERVERS.values() for one in fields(rule)}
    names |= {name for method in METHODS for name in get(method).settings}
    return known | {"method": sorted(names)}


if __name__ == "__main__":
    print(json.dumps(known_settings(), indent=1))
