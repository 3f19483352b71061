"""The configuration that comes with a server's question, as a vehicle reads it."""

import json
import tomllib
from functools import lru_cache
from hashlib import sha256

from fedwatt.deploy.messages import Content
from fedwatt.errors import DataError, SettingError
from fedwatt.plugins import named_by_server
from fedwatt.runs.config import RunConfig, from_toml
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
    with named_by_server():
        config = from_toml(text, "the server's configuration")
    if changed := changed_since(text, config.plugins):
        different = [name for names in changed.values() for name in names]
        raise SettingError(
            f"The vehicle's '{different[0]}' is not the server's: install the same version on both."
        )
    return config


@lru_cache(maxsize=4)
def settings_digest(text: str) -> str:
    """A digest of the settings in `text` that say how a run's models come about.

    These are all but deadlines and trackers, which may change when a run goes on.
    """
    table = tomllib.loads(text)
    table.pop("deploy", None)
    table.pop("track", None)
    return sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()
