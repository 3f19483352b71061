"""Rules put together by name: the sound ones train, the others say why not."""

from functools import cache

import pytest
from torch import Tensor, nn

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.methods import get
from fedwatt.models import GRU, MLP, Model, ModuleModel
from tests.federation.toys import Line, all_finite, random_fleet

SOUND = [
    "fractional+scaffold",
    "proximal+scaffold",
    "momentum+scaffold",
    "roughness+scaffold",
    "contrastive+scaffold",
    "fo-ri-fedavg@adam",
    "fo-ri-fedavg@yogi",
    "ri-fedavg@adagrad",
    "fedprox@sgd",
    "momentum@nova",
    "proximal@nova",
    "roughness@nova",
    "contrastive@nova",
    "momentum+contrastive@nova",
    "proximal+contrastive@yogi",
    "fractional+contrastive@adam",
    "momentum+proximal+contrastive",
    "moon+fractional",
    "fractional+feddyn",
    "momentum+feddyn",
    "contrastive+feddyn",
    "roughness+feddyn",
    "fractional+fedel",
    "momentum+fedel",
    "proximal+fedel",
    "fo-ri-fedavg+fedel",
    "fedavg+fednova",
]

UNSOUND = {
    "fractional@nova": "Fractional is not linear in the gradients",
    "fo-ri-fedavg@nova": "Fractional is not linear in the gradients",
    "proximal+momentum@nova": "no closed form for Proximal and Momentum together",
    "roughness+proximal+fednova": "no closed form for RoughnessProximal and Proximal together",
    "proximal+momentum+scaffold": "SCAFFOLD's option 2 .* no closed form for Proximal and Momentum",
    "scaffold@adam": "ControlVariates in the vehicles and Scaffold on the server are halves",
    "scaffold@nova": "ControlVariates in the vehicles and Scaffold on the server are halves",
    "feddyn@average": "Dynamic in the vehicles and DynamicServer on the server are halves",
    "feddyn@nova": "Dynamic in the vehicles and DynamicServer on the server are halves",
    "fedel@average": "Elastic in the vehicles and ElasticServer on the server are halves",
    "fedel@adam": "Elastic in the vehicles and ElasticServer on the server are halves",
    "momentum+fractional": "Fractional scales single steps and Momentum mixes them",
    "moon+fedel": "Contrastive compares representations of the whole model",
    "scaffold+feddyn": "two of its parts bring their own server",
    "fednova+fedadam": "two of its parts bring their own server",
    "fedel+scaffold": "two of its parts bring their own server",
    "fednova@adam": "would replace Nova, .* Use 'fedavg@adam' instead",
    "proximal+fednova@sgd": "would replace Nova, .* Use 'proximal@sgd' instead",
    "fedadam@sgd": "would replace Adam, .* Use 'fedavg@sgd' instead",
    "fedadam@average": "would replace Adam",
    "fedprox+fedadam@krum+yogi": "would replace Adam, .* Use 'fedprox@krum.yogi' instead",
    "fedprox+proximal": "Proximal is named twice",
    "fedavg@fedadam": "Unknown server",
    "proximal+fedporx": "Did you mean 'fedprox'",
}


def trained(name: str, model: Model) -> tuple[State, float]:
    """(the state after three rounds, by how many Wh the test error has fallen)."""
    federation = Federation(
        random_fleet(),
        model,
        training=Training(rounds=3, participation=0.6, batch=16),
        availability=Availability(speeds=(1.0, 0.5)),
        seeds=(1,),
        device="cpu",
    )
    method = get(name)
    state, first = federation.start(method)
    while not federation.finished(state):
        state, record = federation.advance(method, state)
    return state, first.rounds[0]["test_rmse"] - record.rounds[0]["test_rmse"]


@cache
def plain(model: Model) -> Tensor:
    """FedAvg's weights after as many rounds."""
    return trained("fedavg", model)[0].weights


def check_training(name: str, model: Model) -> None:
    state, fallen_wh = trained(name, model)
    assert state.round == 3
    assert not state.diverged.any()
    assert all_finite(state)
    # It learns, and its rules do something.
    assert fallen_wh > 0
    assert not state.weights[:, : model.layout.size].equal(plain(model))


@pytest.mark.parametrize("name", SOUND)
def test_sound_compositions_train(name: str) -> None:
    check_training(name, MLP(4, 8, (6, 5)))


@pytest.mark.parametrize("name", ["fractional+scaffold", "proximal+contrastive@yogi", "fedel"])
def test_compositions_do_not_depend_on_the_model(name: str) -> None:
    check_training(name, GRU(8, 4))


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_compositions_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(SettingError, match=UNSOUND[name]):
        get(name)


def test_scaffold_with_its_own_gradient_needs_no_closed_form() -> None:
    # Option 1 does not divide by the steps, so nothing stands in the way of pull and momentum.
    assert len(get("proximal+momentum+scaffold", option=1).local) == 3


def test_fedel_refuses_a_model_whose_blocks_it_does_not_know() -> None:
    federation = Federation(random_fleet(), Line(), device="cpu")
    with pytest.raises(SettingError, match="FedEL needs a model's blocks, and Line"):
        federation.start(get("fedel"))


def test_a_server_may_be_named_twice() -> None:
    assert get("fedadam@adam").server == get("fedadam").server
    assert get("fedadam@krum").composition == "plain SGD → Krum → Adam"


def test_moon_refuses_a_model_without_a_representation() -> None:
    # The output of a module would pass for one: the cosine of two numbers has gradient 0, FedAvg.
    module = nn.Sequential(nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 1))
    federation = Federation(random_fleet(), ModuleModel(module), device="cpu")
    for name in ("moon", "contrastive+scaffold"):
        with pytest.raises(SettingError, match=r"ModuleModel declares none. Use an MLP"):
            federation.start(get(name))
    federation.start(get("fedavg"))
