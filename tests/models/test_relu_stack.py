"""Modules that are an MLP in other words are recognised; all others are left alone."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedwatt.engine.kernels.c_compiler import SlowerInTorch
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import LocalRule, Method, Rows
from fedwatt.models import MLP, ModuleModel
from fedwatt.models.mlp import recognised
from tests.federation.toys import random_fleet

WINDOW = 4
FEATURES = 8


class UserNetwork(nn.Module):
    """Layers that are declared in another order than they are used."""

    def __init__(self, act=torch.relu, turn=False) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.first = nn.Linear(32, 5)
        self.middle = nn.Linear(5, 3)
        self.act = act
        self.turn = turn

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2) if self.turn else x
        x = self.act(self.first(x.reshape(x.shape[0], -1)))
        return self.last(self.act(self.middle(x))).squeeze(-1)


def sequential(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 5), *between, nn.Linear(5, 1))


def stack_of(module):
    return ModuleModel(module).relu_stack(WINDOW, FEATURES)


@pytest.mark.parametrize(
    "module", [UserNetwork(), UserNetwork(nn.functional.relu), sequential(nn.ReLU())]
)
def test_an_mlp_in_other_words_is_recognised(module):
    stack = stack_of(module)
    assert stack.model.hidden in ((5, 3), (5,))
    weights = torch.randn(2, stack.module_layout.size, dtype=torch.float64)
    windows = torch.randn(2, 6, WINDOW, FEATURES, dtype=torch.float64)
    predictions = ModuleModel(module).predict(weights, windows)
    # The same products in float64.
    assert torch.allclose(
        stack.model.predict(stack.to_mlp(weights), windows), predictions, atol=1e-12
    )
    assert torch.equal(stack.from_mlp(stack.to_mlp(weights)), weights)


@pytest.mark.parametrize(
    "module",
    [
        UserNetwork(torch.tanh),
        UserNetwork(turn=True),
        sequential(nn.SiLU()),
        sequential(nn.ReLU(), nn.LayerNorm(5)),
        sequential(),
        nn.Sequential(nn.Flatten(), nn.Linear(32, 5, bias=False), nn.ReLU(), nn.Linear(5, 1)),
        nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 1), nn.Flatten()),
    ],
)
def test_anything_else_is_left_alone(module):
    assert stack_of(module) is None


def test_a_module_that_reads_other_windows_is_left_alone():
    model = ModuleModel(UserNetwork())
    assert recognised(model.module, model.layout, 5, 8) is None


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fo-ri-fedavg", "fedprox@adam"])
def test_training_is_the_same_as_by_autograd(method, monkeypatch):
    torch.manual_seed(1)
    module = UserNetwork()
    fleet = random_fleet((40, 33))
    training = Training(rounds=3, batch=8, participation=1.0, precision="float64")

    def rmse():
        return Federation(fleet, module, training=training).train(method).history.rounds[-1]

    quick = rmse()
    monkeypatch.setattr(ModuleModel, "relu_stack", lambda self, window, features: None)
    plain = rmse()
    # float64 in another order of adding; probes take differences of losses.
    assert quick["test_rmse"] == pytest.approx(plain["test_rmse"], rel=1e-8)
    assert quick["drift_mean"] == pytest.approx(plain["drift_mean"], rel=1e-7)


def test_it_is_the_network_by_name():
    """From the same weights, a module trains to what the MLP trains to."""
    torch.manual_seed(2)
    fleet = random_fleet((40, 33))
    training = Training(rounds=2, batch=8, precision="float64")
    module = sequential(nn.ReLU())
    model = ModuleModel(module)
    begin = model.relu_stack(WINDOW, FEATURES).to_mlp(model.initial(None))

    class Begun(MLP):
        def initial(self, rng):
            return begin

    by_name = Begun(WINDOW, FEATURES, (5,))
    result = [
        Federation(fleet, network, training=training).train("fedavg").history.last("test_rmse")[1]
        for network in (module, by_name)
    ]
    assert result[0] == pytest.approx(result[1], rel=1e-10)


def test_dropout_and_batch_norm_are_refused_with_what_to_use():
    with pytest.raises(SettingError, match=r"dropout \(layer '2', p = 0.3\).* Leave it out"):
        ModuleModel(sequential(nn.Dropout(0.3)))
    ModuleModel(sequential(nn.Dropout(0.0)))
    with pytest.raises(SettingError, match=r"'2.running_mean' \(batch norm\?\).*nn.LayerNorm"):
        ModuleModel(sequential(nn.BatchNorm1d(5)))


def test_dropout_inside_forward_is_a_sentence_too():
    fleet = random_fleet((40, 33))
    training = replace(Training(rounds=1, batch=8), participation=1.0)
    federation = Federation(fleet, UserNetwork(nn.functional.dropout), training=training)
    with pytest.raises(SettingError, match="UserNetwork draws random numbers in its forward"):
        federation.train("fedavg")


@dataclass(frozen=True, kw_only=True)
class FirstEight(LocalRule):
    """Trains the first eight weights of a model and no others."""

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        return gradient * (torch.arange(gradient.shape[-1], device=gradient.device) < 8)


def test_a_rule_that_goes_by_the_place_of_a_weight_finds_the_modules_own():
    federation = Federation(
        random_fleet(),
        UserNetwork(),
        training=Training(rounds=1, precision="float64"),
        device="cpu",
    )
    method = Method("first eight", (FirstEight(),))
    before, _ = federation.start(method)
    with pytest.warns(SlowerInTorch):
        after, _ = federation.advance(method, before)
    moved = (after.weights != before.weights).any(dim=0).nonzero().flatten().tolist()
    assert moved and max(moved) < 8
