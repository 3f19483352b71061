"""The named models of a configuration."""

from collections.abc import Callable, Sequence
from typing import Final

from fedwatt import plugins
from fedwatt.errors import SettingError, unknown
from fedwatt.models.custom import own_model, own_network
from fedwatt.models.mlp import MLP
from fedwatt.models.model import Model
from fedwatt.models.recurrent import GRU, LSTM


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


MODELS: Final[dict[str, Callable[[int, int, Sequence[int]], Model]]] = {
    "mlp": _mlp,
    "gru": _recurrent(GRU),
    "lstm": _recurrent(LSTM),
}


OWN: Final = "own"
"""Name of a network that was given as an object, which no configuration can make again."""


def get_model(name: str, *, window: int, features: int, hidden: Sequence[int] = ()) -> Model:
    """Model by its name or by a reference to one's own (`fedwatt.models.custom`).

    `hidden` gives the widths (default 64-32 for the MLP, 32 otherwise).

    >>> get_model("mlp", window=60, features=8).layout.size
    32897
    """
    if name not in MODELS and plugins.refers(name, "model"):
        return own_model(name, window, features, hidden)
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
        own_network(name)
    else:
        raise SettingError(unknown("model", name, [*MODELS, *plugins.entry_points("model")]))
