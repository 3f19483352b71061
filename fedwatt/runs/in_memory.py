"""Runs of a federation that was made in Python: its configuration, and its folder.

What Python was given as objects is written down by name: a rule or network by a reference to its
class (`fedwatt.plugins`), a fleet by where it was loaded from. What has no name keeps the one of
"own"; such a run can be reported on and compared, but only the program that has the objects can go
on with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedwatt.errors import FedwattError, SettingError
from fedwatt.federation import Federation, History, State
from fedwatt.methods import Method, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from fedwatt.models import GRU, LSTM, MLP, Model, ModuleModel, get_model
from fedwatt.models import catalogue as models
from fedwatt.observers import Observer, Observers, ProgressLog
from fedwatt.plugins import reference_to, short
from fedwatt.runs.carry_out import Run, carry_out
from fedwatt.runs.checkpoint import Origin, save_checkpoint
from fedwatt.runs.config import MethodChoice, ModelChoice, RunConfig, Source
from fedwatt.runs.execute import Simulation
from fedwatt.runs.folder import run_hash
from fedwatt.runs.source import OWN
from fedwatt.windows import Fleet


def configuration(federation: Federation, method: Method) -> RunConfig:
    """Return the configuration that makes the same run."""
    fleet = federation.fleet
    return RunConfig(
        methods=(named(method),),
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
    """Return the method under a name that leads to its rules, labelled as it was called.

    One whose rules nobody else can find (of a function or a session) keeps the name it has.
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


def _rule_name(rule: object, known: Mapping[str, object]) -> str:
    """Return the name of a rule of fedwatt, or a reference to its class."""
    names = (name for name, entry in known.items() if type(entry) is type(rule))
    return next(names, None) or reference_to(type(rule))


def _model_choice(federation: Federation) -> ModelChoice:
    """Return the model by the name that makes it again; "own" if none does."""
    network = federation.model_asked
    model = federation.model
    hidden: tuple[int, ...] = ()
    if isinstance(network, str):
        name = network
    elif isinstance(model, MLP | GRU | LSTM):
        name = type(model).__name__.lower()
        hidden = model.hidden if isinstance(model, MLP) else (model.hidden,)
    else:
        own = network.module if isinstance(network, ModuleModel) else network
        name = reference_to(type(own) if isinstance(own, nn.Module | Model) else own)
    if _makes(name, hidden, federation):
        return ModelChoice(name=name, hidden=hidden)
    return GivenModel.of(model)


class GivenModel(ModelChoice):
    """A network that no name makes, for as long as it is at hand."""

    @staticmethod
    def of(model: Model) -> "GivenModel":
        """Return the choice of this network."""
        choice = GivenModel(name=models.OWN)
        object.__setattr__(choice, "given", model)
        return choice

    def on(self, fleet: Fleet) -> Model:
        """Return the network itself."""
        model: Model = self.__dict__["given"]
        return model


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


@dataclass
class InMemory(Simulation):
    """The `Site` of a run whose federation is at hand."""

    at_hand: Federation | None = None

    def open(self) -> Fleet:
        """Return the fleet that was given."""
        assert self.at_hand is not None
        self.opened = self.at_hand.fleet
        return self.opened

    def federation(self, choice: MethodChoice, *, scratch: Path | None = None) -> Federation:
        """Return the federation that was given; what it remembers stays where it is."""
        assert self.at_hand is not None
        return self.at_hand


def train_into(
    out: Path, federation: Federation, config: RunConfig, observer: Observer, *, resume: bool
) -> None:
    """Train the method of `config` and fill the run folder `out`, from its checkpoint on if any."""
    followed = Observers((observer, ProgressLog(out)))
    carry_out(InMemory(Run(config, out, followed, resume), at_hand=federation))
    followed.on_finish(out)


def write_run(
    out: Path, federation: Federation, config: RunConfig, state: State, history: History
) -> None:
    """Write the folder of a finished run: its checkpoint and everything derived from it."""
    (choice,) = config.methods
    run = Run(config, out, Observers(()), resume=True)
    origin = Origin(run_hash(config), federation.fleet.data_hash())
    if not choice.method.personalised:
        # What vehicles remember is of use to the next round alone, and there is none.
        state = replace(state, memory={}, events={})
    elif state.paged:
        raise SettingError(
            "The vehicles' own models are too many for memory and lie in a file. Train them into "
            "a run folder from the start: train(..., out=FOLDER)."
        )
    save_checkpoint(run.checkpoints(choice), state, history, origin)
    carry_out(InMemory(run, at_hand=federation))
