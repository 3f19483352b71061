"""The named models of a configuration, and networks that users write.

A user's network is a class or a function, found by a reference (`fedwatt.plugins`). It is
called with whichever of `window`, `features` and `hidden` it takes, by name, and gives a
`torch.nn.Module` from windows [batch, window, features] to energies [batch], or a `Model`:

    class Net(nn.Module):
        def __init__(self, window: int, features: int) -> None: ...

Each seed's first weights are those that the network gives itself, drawn with that seed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from inspect import isfunction, signature
from typing import Any

import torch
from torch import nn

from fedwatt import plugins
from fedwatt.errors import SettingError, unknown
from fedwatt.models.mlp import MLP
from fedwatt.models.model import Model
from fedwatt.models.module import ModuleModel
from fedwatt.models.recurrent import GRU, LSTM

WANTED = "a class or function that makes a torch.nn.Module"


def user_network(name: str) -> plugins.Plugin:
    """Return the class or function behind a reference."""
    return plugins.resolve(name, "model", WANTED, _fits)


@cache
def made(name: str, make: Any, window: int, features: int, hidden: tuple[int, ...] = ()) -> Model:
    """Return the model that `make` builds for windows [window, features]; `name` is for messages.

    One model for all methods of a run, so that what is prepared for it serves them all.
    """
    if not callable(make):
        raise SettingError(f"A model is a name, a torch.nn.Module or {WANTED}, not {make!r}.")
    arguments = {"window": window, "features": features}
    taken = signature(make).parameters
    if hidden:
        if "hidden" not in taken:
            raise SettingError(f"'{name}' takes no 'hidden', so leave model.hidden empty.")
        arguments["hidden"] = hidden  # type: ignore[assignment]
    arguments = {parameter: value for parameter, value in arguments.items() if parameter in taken}

    def build() -> Any:
        return make(**arguments)

    try:
        with torch.random.fork_rng(devices=[]):
            network = build()
    except TypeError as error:
        raise SettingError(
            f"'{name}' cannot be made of {', '.join(arguments)}: {error}."
        ) from error
    if isinstance(network, Model):
        return network
    if not isinstance(network, nn.Module):
        raise SettingError(f"'{name}' gives a {type(network).__name__}; it must be {WANTED}.")
    return ModuleModel(network, make=build)


def _fits(value: Any) -> bool:
    return isfunction(value) or (isinstance(value, type) and issubclass(value, nn.Module | Model))


def _mlp(window: int, features: int, hidden: Sequence[int]) -> Model:
    return MLP(window, features, tuple(hidden) or (64, 32))


def _recurrent(kind: type[GRU] | type[LSTM]) -> Callable[[int, int, Sequence[int]], Model]:
    def build(window: int, features: int, hidden: Sequence[int]) -> Model:
        if len(hidden) > 1:
            raise SettingError(
                f"A {kind.__name__} has one layer, so hidden takes one width, such as [32]; "
                f"got {list(hidden)}."
            )
        return kind(features, *hidden)

    return build


MODELS: dict[str, Callable[[int, int, Sequence[int]], Model]] = {
    "mlp": _mlp,
    "gru": _recurrent(GRU),
    "lstm": _recurrent(LSTM),
}


OWN = "own"
"""Name of a network that was given as an object, which no configuration can make again."""


def get_model(name: str, *, window: int, features: int, hidden: Sequence[int] = ()) -> Model:
    """Return a model by its name, or by a reference to a class outside fedwatt.

    `hidden` gives the widths (default 64-32 for the MLP, 32 otherwise).

    >>> get_model("mlp", window=60, features=8).layout.size
    32897
    """
    if name not in MODELS and plugins.refers(name, "model"):
        return made(name, user_network(name).value, window, features, tuple(hidden))
    refuse_unknown(name)
    if name == OWN:
        raise SettingError(
            "The network of this run was given as an object in Python. Hand it over again with "
            "fedwatt.load(RUN, model=...), or train with a class or function that makes it, such "
            "as Federation(fleet, './net.py:Net')."
        )
    return MODELS[name](window, features, hidden)


def refuse_unknown(name: str) -> None:
    """Raise unless a model of this name, or what a reference names, is there."""
    if name in (*MODELS, OWN):
        return
    if plugins.refers(name, "model"):
        user_network(name)
    else:
        raise SettingError(unknown("model", name, [*MODELS, *plugins.entry_points("model")]))
