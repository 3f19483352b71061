"""Code outside fedwatt that a run depends on, and whether it is unchanged.

config.toml lists it, a hash of its source file for each reference:

    [plugins.methods]
    "./sam.py:sam" = "5f3e…"
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedwatt import plugins
from fedwatt.errors import SettingError
from fedwatt.files import parse_toml
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, METHODS, SERVERS
from fedwatt.models import MODELS
from fedwatt.models.catalogue import OWN
from fedwatt.windows import FEATURE_SETS, FEATURES, DataSettings
from fedwatt.windows.targets import TARGETS

Sources = dict[str, dict[str, str]]
"""Kind, in the plural → reference → hash."""

BUILT_IN = {
    "method": {*METHODS, *LOCAL_RULES, *SERVERS, *DEFENCES},
    "model": {*MODELS, OWN},
    "target": {*TARGETS},
    "feature": {*FEATURE_SETS, *FEATURES},
}


def sources_of(
    methods: Iterable[str],
    model: str,
    data: DataSettings,
    recorded: Mapping[str, Mapping[str, str]],
) -> Sources:
    """Return the code behind the names of a configuration: as it was `recorded`, or else as it is
    now.
    """
    sources: Sources = {}
    for kind, name in _names(methods, model, data):
        if name not in BUILT_IN[kind] and plugins.refers(name, kind):
            source = recorded.get(f"{kind}s", {}).get(name) or plugins.resolve(name, kind).source
            sources.setdefault(f"{kind}s", {})[name] = source
    return sources


def _names(methods: Iterable[str], model: str, data: DataSettings) -> Iterator[tuple[str, str]]:
    for method in methods:
        yield from (("method", part) for part in plugins.parts(method))
    yield "model", model
    yield "target", data.target
    yield from (("feature", word.strip()) for word in data.features.split(","))


def refuse_uninstalled(sources: Sources) -> None:
    """Raise if code is named by its place: vehicles take the entry points of installed packages."""
    for name in (name for names in sources.values() for name in names):
        if ":" in name:
            raise SettingError(
                f"A vehicle does not run '{name}' because a server names it. Install the package "
                "that has it on server and vehicles, with an entry point (docs/extending.md)."
            )


def changed_code(recorded: Any, present: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the references of each kind whose code differs from what config.toml recorded."""
    if not isinstance(recorded, Mapping) or not all(
        isinstance(names, Mapping) for names in recorded.values()
    ):
        raise SettingError("[plugins] is written by fedwatt; leave it as it was, or leave it out.")
    sources = {
        kind: [n for n, hashed in names.items() if recorded.get(kind, {}).get(n, hashed) != hashed]
        for kind, names in present.items()
    }
    return {kind: names for kind, names in sources.items() if names}


def changed_since(text: str, present: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """`changed_code` of what the text of a config.toml records."""
    return changed_code(parse_toml(text).get("plugins", {}), present)


def sentence(changed: Mapping[str, list[str]], since: str) -> str:
    """Return which code has changed since when."""
    names = " and ".join(f"'{name}'" for kind in changed.values() for name in kind)
    return f"The code of {names} has changed since {since}."
