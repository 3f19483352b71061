"""The configuration that comes with a server's question, as a vehicle reads it."""

import json
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from fedwatt.deploy.messages import Content
from fedwatt.errors import DataError, SettingError
from fedwatt.methods import get
from fedwatt.plugins import named_in
from fedwatt.runs.config import RunConfig, from_tables, from_toml, to_toml
from fedwatt.runs.own_code import changed_since


def configuration_of(question: Content) -> RunConfig:
    """The configuration of a question; DataError if it has none."""
    text = question.values.get("config")
    if not isinstance(text, str):
        raise DataError("the question lacks its configuration")
    return read_configuration(text)


@lru_cache(maxsize=2)
def read_configuration(text: str) -> RunConfig:
    """Read once for as long as it stays the same; the vehicle's own code must be the server's."""
    config = from_toml(text, "The server's configuration")
    if changed := changed_since(text, config.plugins):
        different = [name for names in changed.values() for name in names]
        raise SettingError(
            f"The vehicle's '{different[0]}' is not the server's: install the same version on both."
        )
    return config


@lru_cache(maxsize=4)
def settings_digest(text: str) -> str:
    """A digest of the settings in `text` that say how a run's models come about.

    These are all but deadlines and trackers, which may change when a run goes on. What has its
    default is left out, so that a run goes on after an update that brings a new setting.
    """
    table, usual = tomllib.loads(text), tomllib.loads(to_toml(from_tables({})))
    said: dict[str, Any] = {
        name: _unusual(own, usual[name]) if isinstance(own, dict) and name in usual else own
        for name, own in table.items()
        if name not in ("deploy", "track")
    }
    if "method" in said:
        said["method"] = [_unusual(own, _usual_method(own.get("name"))) for own in said["method"]]
    said = {name: own for name, own in said.items() if own not in ({}, usual.get(name))}
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _unusual(own: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if value != usual.get(name)}


def _usual_method(name: object) -> Mapping[str, Any]:
    """Settings of a method that has no others than its defaults; none where it is not known."""
    try:
        with named_in("The server's configuration"):
            return get(str(name)).settings
    except SettingError:
        return {}
