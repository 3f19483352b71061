"""The methods by name. A new method is one line here and edits no engine."""

from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from fedwatt.errors import SettingError, unknown
from fedwatt.methods.adaptive import Adagrad, Adam, ServerSgd, Yogi
from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.dynamic import Dynamic, DynamicServer
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.method import Method
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.nova import Nova
from fedwatt.methods.proximal import Proximal
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.scaffold import ControlVariates, Scaffold
from fedwatt.methods.server import Average, ServerRule
from fedwatt.settings import with_settings

Rule = TypeVar("Rule", LocalRule, ServerRule)


@dataclass(frozen=True)
class Recipe:
    """How a named method is put together, and a sentence for whoever chooses."""

    summary: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()


METHODS: Final[dict[str, Recipe]] = {
    "fedavg": Recipe("Local SGD and averaging by windows; the baseline of everything."),
    "fedprox": Recipe("FedAvg with a constant pull toward the broadcast model.", (Proximal(),)),
    "scaffold": Recipe(
        "Control variates take the vehicles' disagreement out of their steps.",
        (ControlVariates(),),
        Scaffold(),
    ),
    "fednova": Recipe("Averaging that does not favour vehicles with more steps.", (), Nova()),
    "fedadam": Recipe("FedAvg with an Adam step on the server.", (), Adam()),
    "moon": Recipe(
        "Keeps representations near the global model's, away from the last own.", (Contrastive(),)
    ),
    "feddyn": Recipe(
        "A regulariser that moves with each vehicle until all agree.",
        (Dynamic(),),
        DynamicServer(),
    ),
    "fo-fedavg": Recipe("FedAvg with fractional-order steps of order alpha.", (Fractional(),)),
    "ri-fedavg": Recipe(
        "FedProx whose pull follows the roughness of each vehicle's loss.", (RoughnessProximal(),)
    ),
    "fo-ri-fedavg": Recipe(
        "The paper's method: roughness-controlled pull and fractional-order steps.",
        (RoughnessProximal(), Fractional()),
    ),
}

LOCAL_RULES: Final[dict[str, LocalRule]] = {
    "proximal": Proximal(),
    "roughness": RoughnessProximal(),
    "fractional": Fractional(),
    "momentum": Momentum(),
    "contrastive": Contrastive(),
}
"""Local rules that may be added to any method, as in "scaffold+fractional"."""

SERVERS: Final[dict[str, ServerRule]] = {
    "average": Average(),
    "nova": Nova(),
    "sgd": ServerSgd(),
    "adam": Adam(),
    "adagrad": Adagrad(),
    "yogi": Yogi(),
}
"""Servers that may replace a method's own, as in "fo-ri-fedavg@adam"."""


def recipe(name: str) -> Recipe:
    """The parts of a named method or of a composition such as "fractional+scaffold@adam"."""
    if name in METHODS:
        return METHODS[name]
    local_names, at, server_name = name.partition("@")
    local: list[LocalRule] = []
    server: ServerRule = Average()
    for part in local_names.split("+"):
        if part in LOCAL_RULES:
            local.append(LOCAL_RULES[part])
        elif part in METHODS:
            local += METHODS[part].local
            own = METHODS[part].server
            if own != Average() and server not in (Average(), own):
                raise SettingError(f"Method '{name}': two of its parts bring their own server.")
            server = own if own != Average() else server
        else:
            known = [*METHODS, *(LOCAL_RULES if at or "+" in name else ())]
            raise SettingError(unknown("method", part, known, "'fedwatt methods' lists all."))
    if at:
        if server_name not in SERVERS:
            raise SettingError(unknown("server", server_name, SERVERS))
        server = SERVERS[server_name]
    return Recipe(f"Composed: {name}.", tuple(local), server)


def get(name: str, **settings: Any) -> Method:
    """The method called `name`, with any of its hyperparameters replaced.

    >>> get("fo-fedavg", alpha=0.7).local[0].alpha
    0.7
    >>> get("fractional+scaffold@average").composition
    Traceback (most recent call last):
    ...
    fedwatt.errors.SettingError: Method 'fractional+scaffold@average': ControlVariates in the \
vehicles and Scaffold on the server are halves of one mechanism; use both or neither.
    """
    parts = recipe(name)
    rules: tuple[LocalRule | ServerRule, ...] = (*parts.local, parts.server)
    known = {field.name for rule in rules for field in fields(rule)}
    for setting in settings:
        if setting not in known:
            hint = "" if known else f"'{name}' has none."
            raise SettingError(unknown(f"hyperparameter of {name}", setting, known, hint))
    return Method(
        name,
        tuple(_with(rule, settings, name) for rule in parts.local),
        _with(parts.server, settings, name),
    )


def _with(rule: Rule, settings: dict[str, Any], method: str) -> Rule:
    own = {field.name for field in fields(rule)}
    return with_settings(rule, {n: v for n, v in settings.items() if n in own}, method)
