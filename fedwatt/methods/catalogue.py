"""The methods by name. A new method is one line here and edits no engine."""

from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from fedwatt.errors import SettingError, unknown
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.method import Method
from fedwatt.methods.proximal import Proximal
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.methods.rule import LocalRule
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
    "fo-fedavg": Recipe("FedAvg with fractional-order steps of order alpha.", (Fractional(),)),
    "ri-fedavg": Recipe(
        "FedProx whose pull follows the roughness of each vehicle's loss.", (RoughnessProximal(),)
    ),
    "fo-ri-fedavg": Recipe(
        "The paper's method: roughness-controlled pull and fractional-order steps.",
        (RoughnessProximal(), Fractional()),
    ),
}


def get(name: str, **settings: Any) -> Method:
    """The method called `name`, with any of its hyperparameters replaced.

    >>> get("fo-fedavg", alpha=0.7).local[0].alpha
    0.7
    """
    if name not in METHODS:
        raise SettingError(unknown("method", name, METHODS, "'fedwatt methods' lists all."))
    recipe = METHODS[name]
    rules: tuple[LocalRule | ServerRule, ...] = (*recipe.local, recipe.server)
    known = {field.name for rule in rules for field in fields(rule)}
    for setting in settings:
        if setting not in known:
            hint = "" if known else f"'{name}' has none."
            raise SettingError(unknown(f"hyperparameter of {name}", setting, known, hint))
    return Method(
        name,
        tuple(_with(rule, settings, name) for rule in recipe.local),
        _with(recipe.server, settings, name),
    )


def _with(rule: Rule, settings: dict[str, Any], method: str) -> Rule:
    own = {field.name for field in fields(rule)}
    return with_settings(rule, {n: v for n, v in settings.items() if n in own}, method)
