"""A configuration as the series of versions before this one can read it.

A new version brings new settings. Where these have their defaults they are left out of what
vehicles are told, of a real fleet's config.toml and of the hash that a run is known by: so vehicles
that are not updated yet understand a question, and a run goes on after an update and after a
rollback. A setting with another value is kept; an earlier version says that it does not know it.

`settings_before.json` names the settings of the series before. After a release it is written anew:

    python -m fedwatt.runs.earlier > fedwatt/runs/settings_before.json
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

import tomli_w

from fedwatt.methods import Method, get
from fedwatt.methods.catalogue import LOCAL_RULES, METHODS, SERVERS
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.server import ServerRule
from fedwatt.runs.config import RunConfig, from_tables, to_tables


def earlier_toml(config: RunConfig) -> str:
    """The configuration without settings that are new and have their defaults."""
    usual, told, known = to_tables(from_tables({})), to_tables(config), settings_before()
    for section, table in told.items():
        if isinstance(table, dict) and section in usual:
            told[section] = _readable(table, usual[section], known.get(section, ()))
    told["method"] = [
        _readable(table, _usual(table["name"]), known["method"]) for table in told["method"]
    ]
    # A section that is new, and all of whose settings have their defaults, is empty.
    return tomli_w.dumps({name: own for name, own in told.items() if own != {}})


def _usual(method: str) -> Mapping[str, Any]:
    """Hyperparameters of a method as they are where nothing else is said."""
    return get(method).settings


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
    rules: list[LocalRule | ServerRule | Method] = [*LOCAL_RULES.values(), *SERVERS.values()]
    rules += [get(name) for name in METHODS]
    names = {name for rule in rules for name in _hyperparameters(rule)}
    return known | {"method": sorted(names)}


def _hyperparameters(rule: LocalRule | ServerRule | Method) -> Iterable[str]:
    return rule.settings if isinstance(rule, Method) else (one.name for one in fields(rule))


if __name__ == "__main__":
    print(json.dumps(known_settings(), indent=1))
