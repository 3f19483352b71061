"""Pages of the methods, docs/methods/FAMILY.md, from the catalogue and the rules' docstrings.

`python tools/reference.py` writes them. A rule's equation stands in the docstring of its class, or
else of its module; the first paragraph of a docstring is a summary.
"""

import inspect
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwatt.cli.listing import describe_method
from fedwatt.federation import Training
from fedwatt.methods import METHODS, Average, Method, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from fedwatt.methods.defence import Defence
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.server import ServerRule
from fedwatt.tuning.tune import RATE
from tools.markdown import as_markdown, paragraphs, table

ROOT = Path(__file__).parents[1]
Rule = LocalRule | Defence | ServerRule


@dataclass(frozen=True)
class Family:
    """Methods that share a page.

    readers  sentences that say who needs the page, and what they know afterwards
    methods  their names, separated by spaces; compositions stand for rules without a method
    """

    title: str
    readers: str
    methods: str


FAMILIES = {
    "paper": Family(
        "The paper's methods",
        "For researchers who reproduce or change FO-RI-FedAvg. After this page you know the file "
        "and the setting behind each symbol of the paper.",
        "fo-fedavg ri-fedavg fo-ri-fedavg",
    ),
    "baselines": Family(
        "Baselines",
        "For researchers who compare a method with those that the paper compares with. After this "
        "page you know each baseline's update, settings and departures from its publication.",
        "fedavg fedprox fedprox-adaptive scaffold fednova fedadam fedavg@yogi fedavg@adagrad "
        "fedavg@sgd moon feddyn fedel",
    ),
    "later": Family(
        "Later methods",
        "For researchers who want a newer method than the paper's baselines. After this page you "
        "know each method's update, settings and departures from its publication.",
        "fedexp fedcm mimelite fedavg+momentum sam lesam",
    ),
    "experiments": Family(
        "Methods of this project",
        "For researchers who want to improve on the paper. After this page you know what has been "
        "tried on its three limitations, and with which result.",
        "si-fedavg ti-fedavg fedavg+signals fedavg@screened",
    ),
    "personalised": Family(
        "Personalised methods",
        "For fleets whose vehicles may use different models. After this page you can choose what "
        "they share. Personalised models never leave their vehicle.",
        "ditto fedrep fedbabu ifca",
    ),
    "robust": Family(
        "Robust aggregation",
        "For fleets in which some vehicles may send wrong updates. After this page you can choose "
        "a defence by the number of wrong updates that it tolerates.",
        "fedavg@krum fedavg@multikrum fedavg@median fedavg@trimmed fedavg@geometric fedavg@bounded",
    ),
    "private": Family(
        "Differential privacy",
        "For fleets whose models must not reveal that a vehicle took part. After this page you "
        "know what is clipped, what noise is added, and the settings of both. "
        "[Methods](../methods.md#differential-privacy) has ε and the accuracy that it costs.",
        "fedavg@private",
    ),
}
"""Name of a page → its methods. This is the only place that sorts methods into families."""

PARTS = {
    type(rule): f"{joint}{name}"
    for joint, parts in (("+", LOCAL_RULES), ("@", {**DEFENCES, **SERVERS}))
    for name, rule in parts.items()
}
"""Class of a rule → how a composition names it."""


def page(family: str) -> str:
    """Return the page of a family."""
    own = FAMILIES[family]
    methods = methods_of(family)
    name, default = next(iter(get(methods[-1]).settings.items()))
    shown: dict[object, str] = {}
    parts = [
        f"# {own.title}",
        own.readers,
        "[Methods](../methods.md) has the notation. The table counts models, and numbers after a "
        "+, per vehicle and round; files are in `fedwatt/methods/`. "
        f"`--set {methods[-1]}.{name}={written(default)}` sets a hyperparameter. All methods also "
        f"have `training.learning_rate`, tuned from {RATE}.",
        table(
            ("method", "file", "down", "up", "vehicle stores", "server stores"),
            [_overview(name) for name in methods],
        ),
        *(_section(name, shown) for name in methods),
    ]
    return "\n\n".join(parts) + "\n"


def methods_of(family: str) -> list[str]:
    """Return the names of a family's methods; "later" also has those that no family lists."""
    names = FAMILIES[family].methods.split()
    if family != "later":
        return names
    listed = {name for other in FAMILIES.values() for name in other.methods.split()}
    methods = [name for name in METHODS if name not in listed]
    shown = {type(rule) for name in (*listed, *methods) for rule in get(name).local}
    rules = [f"fedavg+{name}" for name, rule in LOCAL_RULES.items() if type(rule) not in shown]
    return [*names, *methods, *rules]


def families_table() -> str:
    """Return the table of the families, with links to their pages."""
    rows = [
        (f"[{own.title}](methods/{family}.md)", " ".join(f"`{m}`" for m in methods_of(family)))
        for family, own in FAMILIES.items()
    ]
    return table(("page", "methods"), rows)


def _overview(name: str) -> tuple[str, ...]:
    """Return a link to a method, the files of its rules, and what it sends and stores."""
    folder = ROOT / "fedwatt" / "methods"
    paths = (Path(inspect.getfile(type(rule))) for rule in main_rules(get(name)))
    files = dict.fromkeys(f"`{path.relative_to(folder).as_posix()}`" for path in paths)
    size, *numbers = describe_method(name)["numbers"].values()
    return _link(name), " ".join(files), *(models(count, size) for count in numbers)


def composition(method: Method) -> str:
    """Return the rules of a method, each with the part of a composition that adds it."""
    called = [_called(rule) for rule in method.rules]
    local = " + ".join(called[: len(method.local)]) or "plain SGD"
    return " → ".join([local, *called[len(method.local) :]])


def _called(rule: Rule) -> str:
    """Return the class of a rule, and the part of a composition that adds it."""
    part = "" if isinstance(rule, Average) else PARTS.get(type(rule), "")
    return f"`{type(rule).__name__}`" + (f" (`{part}`)" if part else "")


def models(numbers: int, size: int) -> str:
    """Return a count of numbers in models: "2", "1+3" or "+3"."""
    count, more = divmod(numbers, size)
    return f"{count or ''}{f'+{more}' if more else ''}" or "0"


def _section(name: str, shown: dict[object, str]) -> str:
    """Return the part of a page about one method.

    `shown` maps equations and hyperparameters that the page has already to their method.
    """
    method = get(name)
    rules = main_rules(method)
    facts = describe_method(name)
    summary = facts["summary"] if name in METHODS else paragraphs(type(rules[0]).__doc__ or "")[0]
    texts = dict.fromkeys(text for rule in rules if (text := mechanism(rule)))
    earlier = dict.fromkeys(shown[text] for text in texts if text in shown)
    references = [f"Equations: {' and '.join(map(_link, earlier))}."] if earlier else []
    parts = [
        f"## {name}",
        " ".join([summary, *references]),
        *(_linked(text) for text in texts if text not in shown),
        f"`{command(name)}` trains {composition(method)}.",
        *_hyperparameters(facts["settings"], shown),
    ]
    keys = ((setting, each["default"]) for setting, each in facts["settings"].items())
    shown |= {key: name for key in (*texts, *keys) if key not in shown}
    return "\n\n".join(parts)


def command(name: str) -> str:
    """Return the command that trains a method, with the sampling that it needs."""
    training = Training()
    fault = get(name).server.sampling_fault(training.sampling, training.participation)
    return f"fedwatt run --method {name}{' --set training.sampling=poisson' * bool(fault)}"


def _link(name: str) -> str:
    return f"[`{name}`](#{re.sub('[+@]', '', name)})"


def main_rules(method: Method) -> list[Rule]:
    """Return the rules that make a method what it is: averaging only where there is no other."""
    rules = [rule for rule in method.rules if not isinstance(rule, Average)]
    return rules or [method.server]


def mechanism(rule: Rule) -> tuple[str, ...]:
    """Return the paragraphs that have the equation of a rule, without the summary.

    They are in the docstring of its class or a base, or else of its module.
    """
    kinds = (kind for kind in type(rule).__mro__ if kind not in Rule.__args__)
    for owner in (*kinds, sys.modules[type(rule).__module__]):
        _, *rest = paragraphs(owner.__doc__ or "")
        if any(text.startswith("    ") for text in rest):
            return tuple(rest)
    return ()


def _linked(texts: tuple[str, ...]) -> str:
    """Return paragraphs with links to publications and pages; equations stay as they are."""
    return "\n\n".join(text if text.startswith("    ") else _prose(text) for text in texts)


def _prose(text: str) -> str:
    text = as_markdown(text).replace("*", r"\*")
    text = text.replace("docs/methods.md", "[Methods](../methods.md)")
    return re.sub(r"arXiv\s(\d+\.\d+)", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def _hyperparameters(settings: dict[str, Any], shown: dict[object, str]) -> list[str]:
    """Return the table of the hyperparameters, and where those are that the page has already."""
    rows = []
    earlier: dict[str, list[str]] = {}
    for name, facts in settings.items():
        if name == "learning_rate":
            continue
        if method := shown.get((name, facts["default"])):
            earlier.setdefault(method, []).append(f"`{name}`")
        else:
            tuned = facts.get("tuned", "")
            rows.append((f"`{name}`", f"`{written(facts['default'])}`", tuned, facts["meaning"]))
    parts = [table(("hyperparameter", "default", "tuned from", "meaning"), rows)] if rows else []
    for method, names in earlier.items():
        parts.append(f"As of {_link(method)}: {', '.join(names)}.")
    return parts


def written(value: object) -> str:
    """Return a default as a configuration file has it."""
    return json.dumps(value) if isinstance(value, str | bool) else str(value)
