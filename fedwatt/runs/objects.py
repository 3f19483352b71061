"""The configuration of Python objects: fleets, networks and rules by the names that make them.

A rule or network is named by a reference to its class (`fedwatt.plugins`), a fleet by where it was
loaded from. What has no name keeps the one of "own"; such a run can be reported on and compared,
but only the program that has the objects can continue it.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn

from fedwatt.errors import FedwattError
from fedwatt.federation import Federation
from fedwatt.methods import Method, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from fedwatt.models import GRU, LSTM, MLP, Model, ModuleModel, get_model
from fedwatt.models import catalogue as models
from fedwatt.plugins import reference_to, short
from fedwatt.runs.config import MethodChoice, ModelChoice, RunConfig, Source
from fedwatt.runs.source import OWN
from fedwatt.windows import Fleet


def configuration(federation: Federation) -> RunConfig:
    """Return the configuration that makes the same run, with the default methods."""
    fleet = federation.fleet
    return RunConfig(
        seeds=federation.seeds,
        device=federation.device.type,
        fleet=_source(fleet),
        data=fleet.settings,
        model=_model_choice(federation),
        training=federation.training,
        availability=federation.availability,
        asynchronous=federation.asynchronous,
    )


def _source(fleet: Fleet) -> Source:
    """Return the source of the fleet; "own" if it cannot be made again."""
    names = {setting.name for setting in fields(Source)}
    settings: dict[str, Any] = {n: v for n, v in fleet.origin.items() if n in names}
    return Source(**(settings or {"data": OWN}))


def named(method: Method) -> MethodChoice:
    """Return the method under a name from which its rules can be found again.

    Its label is the name that it has. A method whose rules cannot be found by a name (those of a
    function or a session) keeps that name.
    """
    label = short(method.name)
    local = "+".join(_rule_name(rule, LOCAL_RULES) for rule in method.local) or "fedavg"
    server_part = [_rule_name(method.server, SERVERS)]
    if method.defence is not None:
        server_part.insert(0, _rule_name(method.defence, DEFENCES))
    for name in (method.name, f"{local}@{'+'.join(server_part)}".removesuffix("@average")):
        try:
            if get(name, **method.settings).rules == method.rules:
                return MethodChoice(label, replace(method, name=name))
        except FedwattError:
            continue  # a name that only its author knows
    return MethodChoice(label, replace(method, name=label))


def _rule_name(rule: object, built_in: Mapping[str, object]) -> str:
    """Return the name of a rule of fedwatt, or a reference to its class."""
    names = (name for name, entry in built_in.items() if type(entry) is type(rule))
    return next(names, None) or reference_to(type(rule))


def _model_choice(federation: Federation) -> ModelChoice:
    """Return the model by the name that makes it again; "own" if none does."""
    network = federation.model_given
    model = federation.model
    hidden: tuple[int, ...] = ()
    if isinstance(network, str):
        name = network
    elif isinstance(model, MLP | GRU | LSTM):
        name = type(model).__name__.lower()
        hidden = model.hidden if isinstance(model, MLP) else (model.hidden,)
    else:
        network = network.module if isinstance(network, ModuleModel) else network
        is_instance = isinstance(network, nn.Module | Model)
        name = reference_to(type(network) if is_instance else network)
    if _makes(name, hidden, federation):
        return ModelChoice(name=name, hidden=hidden)
    return ModelChoice(name=models.OWN)


def _makes(name: str, hidden: tuple[int, ...], federation: Federation) -> bool:
    """Return whether a name makes the federation's model: the same tensors, and the same
    predictions.
    """
    window = federation.fleet.window
    features = len(federation.fleet.features)
    model = federation.model
    try:
        other = get_model(name, window=window, features=features, hidden=hidden)
    except FedwattError:
        return False
    if other is model or other == model:
        return True
    if other.layout.shapes != model.layout.shapes:
        return False
    draws = torch.Generator().manual_seed(0)
    weights = torch.randn(model.layout.size, generator=draws) / 4
    windows = torch.randn(3, window, features, generator=draws)
    with torch.no_grad():
        return torch.equal(other.predict(weights, windows), model.predict(weights, windows))
