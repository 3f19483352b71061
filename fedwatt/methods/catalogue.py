"""The methods by name, and the one that fedwatt recommends. A new method is one line here."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from fedwatt import plugins
from fedwatt.errors import SettingError, unknown
from fedwatt.methods.adaptive import Adagrad, Adam, Extrapolated, ServerSgd, SquaredLength, Yogi
from fedwatt.methods.clusters import Centres, ChooseCentre
from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.defence import (
    Defence,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormBound,
    TrimmedMean,
)
from fedwatt.methods.dynamic import Dynamic, DynamicServer
from fedwatt.methods.elastic import Elastic, ElasticServer
from fedwatt.methods.experimental.closed_loop import TransferProximal
from fedwatt.methods.experimental.sharpness import SharpnessProximal
from fedwatt.methods.experimental.signals import Screen, Signals
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.method import Method
from fedwatt.methods.momentum import (
    ClientMomentum,
    FleetMomentum,
    FrozenMomentum,
    MimeServer,
    Momentum,
)
from fedwatt.methods.nova import Nova
from fedwatt.methods.personal import Companion, PersonalHead
from fedwatt.methods.private import OUTSIDE, PrivateAverage
from fedwatt.methods.proximal import AdaptiveMu, BroadcastPull, Proximal
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.scaffold import ControlVariates, Scaffold
from fedwatt.methods.server import Average, ServerRule
from fedwatt.methods.sharpness_aware import GlobalShift, SharpnessAware
from fedwatt.settings import with_settings

RECOMMENDED = "fedavg"
"""The recommended method, by the committed records of the method comparison.

`fedwatt compare --check` computes it again from results/comparison.jsonl by the rule of
docs/which-method.md. A test compares all places that name it: README, that page, the commands that
an import prints, the default configuration of a run, and what a deployed vehicle accepts.
"""


Rule = TypeVar("Rule", LocalRule, Defence, ServerRule)


@dataclass(frozen=True)
class Recipe:
    """The parts of a named method, and a sentence that helps to choose it."""

    summary: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()
    defence: Defence | None = None


METHODS: dict[str, Recipe] = {
    "fedavg": Recipe("Local SGD and averaging by windows; the baseline of all others."),
    "fedprox": Recipe("FedAvg with a constant pull toward the broadcast model.", (Proximal(),)),
    "scaffold": Recipe(
        "Control variates correct local steps for the drift of each vehicle.",
        (ControlVariates(),),
        Scaffold(),
    ),
    "fednova": Recipe("Averaging that does not favour vehicles with more steps.", (), Nova()),
    "fedadam": Recipe("FedAvg with an Adam step on the server.", (), Adam()),
    "moon": Recipe(
        "Pulls representations to the global model's, away from the last local one's.",
        (Contrastive(),),
    ),
    "feddyn": Recipe(
        "Dynamic regularisation, by which local optima approach the global one.",
        (Dynamic(),),
        DynamicServer(),
    ),
    "fedel": Recipe(
        "Slow vehicles train a window of blocks and the tensors in it that matter most.",
        (Elastic(),),
        ElasticServer(),
    ),
    "fedexp": Recipe(
        "FedAvg whose server takes longer steps where vehicles disagree.",
        (SquaredLength(),),
        Extrapolated(),
    ),
    "fedcm": Recipe(
        "Local steps that mix in the direction in which the fleet moved last.",
        (ClientMomentum(),),
        FleetMomentum(),
    ),
    "mimelite": Recipe(
        "Local steps with a server momentum made of gradients at the broadcast model.",
        (FrozenMomentum(),),
        MimeServer(),
    ),
    "sam": Recipe("Gradients where the loss is worst nearby; two per step.", (SharpnessAware(),)),
    "lesam": Recipe(
        "Gradients back along the global model's path: sharpness-aware with one per step.",
        (GlobalShift(),),
    ),
    "fedprox-adaptive": Recipe(
        "FedProx whose pull grows when the fleet's loss rises.", (BroadcastPull(),), AdaptiveMu()
    ),
    "ditto": Recipe(
        "FedAvg, and a personalised model per vehicle, pulled toward the broadcast one.",
        (Companion(),),
    ),
    "fedrep": Recipe(
        "A shared body; the last layer stays in the vehicle and is trained before the body.",
        (PersonalHead(),),
    ),
    "fedbabu": Recipe(
        "A shared body trained against one fixed last layer; fine-tune it with --personalise.",
        (PersonalHead(head_training="never"),),
    ),
    "ifca": Recipe(
        "Several models on the server; each vehicle trains the one that fits it best.",
        (ChooseCentre(),),
        Centres(),
    ),
    "si-fedavg": Recipe(
        "FedProx whose pull follows the relative sharpness of each vehicle's loss.",
        (SharpnessProximal(),),
    ),
    "ti-fedavg": Recipe(
        "FedProx whose pull follows how much of its last gain a vehicle gets back.",
        (TransferProximal(),),
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

LOCAL_RULES: dict[str, LocalRule] = {
    "proximal": Proximal(),
    "roughness": RoughnessProximal(),
    "sharpness": SharpnessProximal(),
    "transfer": TransferProximal(),
    "fractional": Fractional(),
    "signals": Signals(),
    "momentum": Momentum(),
    "contrastive": Contrastive(),
    "sharpness-aware": SharpnessAware(),
    "global-shift": GlobalShift(),
    "personal-model": Companion(),
}
"""Local rules that may be added to any method, as in "scaffold+fractional"."""

SERVERS: dict[str, ServerRule] = {
    "average": Average(),
    "nova": Nova(),
    "sgd": ServerSgd(),
    "adam": Adam(),
    "adagrad": Adagrad(),
    "yogi": Yogi(),
    "private": PrivateAverage(),
}
"""Servers that may take the place of averaging, as in "fo-ri-fedavg@adam"."""

DEFENCES: dict[str, Defence] = {
    "krum": Krum(),
    "multikrum": MultiKrum(),
    "median": Median(),
    "trimmed": TrimmedMean(),
    "geometric": GeometricMedian(),
    "bounded": NormBound(),
    "screened": Screen(),
}
"""Defences that may screen updates before an averaging server, as in "fedavg@krum" or
"fedprox@median+adam"."""


def recipe(name: str) -> Recipe:
    """Return the parts of a named method, or of a composition "LOCAL+LOCAL@DEFENCE+SERVER".

    A part may also be a reference to a plugin (`fedwatt.plugins`).
    """
    if name in METHODS:
        return METHODS[name]
    if plugins.is_single(name) or (
        name in plugins.entry_points("method") and name not in LOCAL_RULES
    ):
        return plugin(name)
    _refuse_misspelt(name)
    local_names, at, server_names = name.partition("@")
    local: list[LocalRule] = []
    server: ServerRule = Average()
    other_parts: list[str] = []
    defences: list[tuple[str, Defence]] = []
    for part in local_names.split("+"):
        part_recipe = _named(part, rules_too=bool(at) or "+" in name)
        local += part_recipe.local
        defences += [(part, part_recipe.defence)] if part_recipe.defence is not None else []
        if part_recipe.server == Average():
            other_parts.append(part)
        elif server in (Average(), part_recipe.server):
            server = part_recipe.server
        else:
            raise SettingError(f"Method '{name}': two of its parts bring their own server.")
    trailing_rules = (
        [(part, _trailing_rule(part)) for part in server_names.split("+")] if at else []
    )
    servers = [rule for _, rule in trailing_rules if isinstance(rule, ServerRule)]
    screens = [(part, rule) for part, rule in trailing_rules if isinstance(rule, Defence)]
    if len(servers) > 1 or len(screens) > 1:
        raise SettingError(
            f"Method '{name}': after the @ there may be one defence and one server, "
            "as in 'fedavg@krum+adam'."
        )
    if servers and servers[0].only_deltas and server.normalises:
        raise SettingError(f"Method '{name}' uploads the number of steps, but {OUTSIDE}.")
    # Servers that are half of a mechanism are refused with that reason, by Method.
    alone = server != Average() and (server.averages or server.normalises)
    if servers and alone and servers[0] != server:
        raise SettingError(
            f"Method '{name}': the server after the @ would replace {type(server).__name__}, "
            f"which defines this method. Use '{'+'.join(other_parts) or 'fedavg'}@"
            f"{server_names}' instead."
        )
    return Recipe(
        f"Composed: {name}.",
        tuple(local),
        servers[0] if servers else server,
        _one_defence(name, [*defences, *screens]),
    )


def _one_defence(name: str, brought: list[tuple[str, Defence]]) -> Defence | None:
    """Return the defence that parts of a composition bring; several must bring the same one."""
    first = brought[0][1] if brought else None
    if any(defence != first for _, defence in brought):
        each = " and ".join(f"'{part}' brings {defence!r}" for part, defence in brought)
        raise SettingError(
            f"Method '{name}': {each}, but a method has one defence. Name only one of these parts."
        )
    return first


def _named(part: str, *, rules_too: bool) -> Recipe:
    """Return a rule or a method in a composition, by its name or by a reference."""
    if part in LOCAL_RULES:
        return Recipe("", (LOCAL_RULES[part],))
    if part in METHODS:
        return METHODS[part]
    if plugins.refers(part, "method"):
        return plugin(part)
    choices = [*METHODS, *plugins.entry_points("method"), *(LOCAL_RULES if rules_too else ())]
    raise SettingError(unknown("method", part, choices, "'fedwatt list' lists all."))


def _trailing_rule(part: str) -> ServerRule | Defence:
    """Return a server or a defence after the @, by its name or by a reference."""
    if part in SERVERS or part in DEFENCES:
        return SERVERS[part] if part in SERVERS else DEFENCES[part]
    if not plugins.refers(part, "method"):
        raise SettingError(unknown("server or defence", part, [*SERVERS, *DEFENCES]))
    part_recipe = plugin(part)
    if part_recipe.local or (part_recipe.defence is not None and part_recipe.server != Average()):
        raise SettingError(f"'{part}' stands after an @, but is neither a server nor a defence.")
    return part_recipe.server if part_recipe.defence is None else part_recipe.defence


def plugin(reference: str) -> Recipe:
    """Return the recipe of a plugin: a method, rule, defence or server."""
    resolved = plugins.resolve(reference, "method", "a Method, or a rule, server or defence", _fits)
    rule = resolved.value
    summary = resolved.summary
    if isinstance(rule, type):
        try:
            rule = rule()
        except TypeError as error:
            raise SettingError(
                f"'{reference}' cannot be made with its defaults: {error}. Give every "
                "hyperparameter a default."
            ) from error
    if isinstance(rule, LocalRule):
        return Recipe(summary, (rule,))
    if isinstance(rule, ServerRule):
        return Recipe(summary, (), rule)
    if isinstance(rule, Defence):
        return Recipe(summary, (), Average(), rule)
    return Recipe(summary, rule.local, rule.server, rule.defence)


def _fits(value: Any) -> bool:
    kinds = (LocalRule, ServerRule, Defence)
    return isinstance(value, (Method, *kinds)) or (
        isinstance(value, type) and issubclass(value, kinds)
    )


def _refuse_misspelt(name: str) -> None:
    """Raise if `name` is not of the form of a composition, with a suggestion."""
    if "," in name:
        names = [part.strip() for part in name.split(",") if part.strip()]
        options = " ".join(f"--method {part}" for part in names)
        raise SettingError(f"'{name}' is not one method. Repeat --method for each: {options}.")
    local_names, at, server_names = name.partition("@")
    if "@" in server_names:
        raise SettingError(
            f"Method '{name}': a defence and a server stand after one @, joined by +. "
            f"Write '{local_names}@{server_names.replace('@', '+')}'."
        )
    parts = [*local_names.split("+"), *(server_names.split("+") if at else ())]
    if name and "" in parts:
        raise SettingError(
            f"Method '{name}': a name is missing before or after a + or @. Write it as "
            "'scaffold+fractional' or 'fedavg@krum+adam'; 'fedwatt list' lists all names."
        )


def get(name: str, **settings: Any) -> Method:
    """Return the method called `name`, with any of its hyperparameters replaced.

    >>> get("fo-fedavg", alpha=0.7).local[0].alpha
    0.7
    >>> get("fractional+scaffold@average").composition
    Traceback (most recent call last):
    ...
    fedwatt.errors.SettingError: Method 'fractional+scaffold@average': ControlVariates in the \
vehicles and Scaffold on the server are halves of one mechanism; use both or neither.
    """
    parts = recipe(name)
    rules: list[LocalRule | Defence | ServerRule] = [*parts.local, parts.server]
    if parts.defence is not None:
        rules.append(parts.defence)
    setting_names = {field.name for rule in rules for field in fields(rule)}
    for setting in settings:
        if setting not in setting_names:
            hint = "" if setting_names else f"'{name}' has none."
            raise SettingError(unknown(f"hyperparameter of {name}", setting, setting_names, hint))
    return Method(
        name,
        tuple(_with(rule, settings, name) for rule in parts.local),
        _with(parts.server, settings, name),
        None if parts.defence is None else _with(parts.defence, settings, name),
    )


def _with(rule: Rule, settings: dict[str, Any], method: str) -> Rule:
    field_names = {field.name for field in fields(rule)}
    return with_settings(rule, {n: v for n, v in settings.items() if n in field_names}, method)
