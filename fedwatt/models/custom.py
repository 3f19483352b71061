"""Networks that somebody else has written: a class or a function, found by a reference.

It is called with whichever of `window`, `features` and `hidden` it takes, by name, and gives a
`torch.nn.Module` from windows [batch, window, features] to energies [batch], or a `Model`:

    class Net(nn.Module):
        def __init__(self, window: int, features: int) -> None: ...

Each seed's first weights are those that the network gives itself, drawn with that seed.
"""

from collections.abc import Sequence
from functools import cache
from inspect import isfunction, signature
from typing import Any

import torch
from torch import nn

from fedwatt import plugins
from fedwatt.errors import SettingError
from fedwatt.models.model import Model
from fedwatt.models.module import ModuleModel

WANTED = "a class or function that makes a torch.nn.Module"


def own_network(name: str) -> plugins.Plugin:
    """Return the class or function behind a reference."""
    return plugins.resolve(name, "model", WANTED, _fits)


def own_model(name: str, window: int, features: int, hidden: Sequence[int]) -> Model:
    """Return the network behind a reference, made for windows [window, features]."""
    return made(name, own_network(name).value, window, features, tuple(hidden))


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
