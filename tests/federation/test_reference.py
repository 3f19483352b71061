"""The stacked engine against a plain loop over vehicles, for ragged sizes and every model."""

from typing import Any

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import Method, get
from fedwatt.models import GRU, LSTM, MLP, Model
from tests.federation import reference
from tests.federation.reference import train_plainly
from tests.federation.toys import random_fleet

MODELS = {"mlp": MLP(4, 8, (7, 5)), "gru": GRU(8, 5), "lstm": LSTM(8, 5)}
# float32 sums in another order differ by rounding, which a few hundred steps spread a little.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
PROBE = {"directions": 3, "points": 6, "probe_batch": 20, "radius": 0.3, "probe_every": 2}
VARIANTS: dict[str, Method] = {
    "fedavg": get("fedavg"),
    "fedprox": get("fedprox"),
    "fo-fedavg": get("fo-fedavg"),
    "ri-fedavg": get("ri-fedavg", **PROBE),
    "fo-ri-fedavg": get("fo-ri-fedavg", **PROBE),
}
VARIANTS["two pulls"] = get("proximal+roughness", mu=0.3, **PROBE)
VARIANTS["fo-ri-fedavg, gated"] = get(
    "fo-ri-fedavg", beta_kappa=0.7, power_iterations=300, lam_schedule="inverse-sqrt", **PROBE
)
VARIANTS["fo-ri-fedavg, clip first"] = get(
    "fo-ri-fedavg",
    beta_kappa=0.7,
    power_iterations=300,
    order="clip-then-gate",
    response="clipped",
    **PROBE,
)


def agree(method: Method, model: Model, precision: str, **settings) -> None:
    training = Training(
        **{"rounds": 4, "participation": 0.6, "batch": 16, "precision": precision} | settings
    )
    fleet = random_fleet()
    federation = Federation(fleet, model, training=training, seeds=(3, 4), device="cpu")
    state, _ = federation.start(method)
    plain = [train_plainly(fleet, model, method, training, seed) for seed in federation.seeds]
    for t in range(training.rounds):
        state, _ = federation.advance(method, state)
        expected = torch.stack([next(steps) for steps in plain])
        torch.testing.assert_close(
            state.weights, expected, rtol=0, atol=TOLERANCE[precision], msg=f"round {t + 1}"
        )


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_method_on_the_mlp(name: str, precision: str) -> None:
    agree(VARIANTS[name], MODELS["mlp"], precision)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("model", ["gru", "lstm"])
@pytest.mark.parametrize("name", ["fedavg", "fo-ri-fedavg"])
def test_recurrent_models(name: str, model: str, precision: str) -> None:
    agree(VARIANTS[name], MODELS[model], precision)


@pytest.mark.parametrize("work", [{"steps": 7}, {"epochs": 3}, {"schedule": "constant"}])
def test_other_kinds_of_local_work(work) -> None:
    agree(VARIANTS["fo-ri-fedavg"], MODELS["mlp"], "float64", **work)


@pytest.mark.parametrize(
    ("method", "training", "held_out", "named"),
    [
        ("scaffold", {}, (), "leave out ControlVariates and Scaffold"),
        ("fednova", {}, (), "leave out Nova"),
        ("momentum", {}, (), "leave out Momentum"),
        ("fedavg@median", {}, (), "leave out Median"),
        ("fedavg", {"loss": "huber"}, (), "leave out the loss 'huber'"),
        ("fedavg", {"sampling": "poisson"}, (), "leave out 'poisson' sampling"),
        ("fedavg", {}, (1,), "leave out held-out vehicles"),
    ],
)
def test_what_it_does_not_know_is_refused(
    method: str, training: dict[str, Any], held_out: tuple[int, ...], named: str
) -> None:
    fleet = random_fleet(held_out=held_out)
    with pytest.raises(SettingError, match=named):
        next(train_plainly(fleet, MODELS["mlp"], get(method), Training(**training), 1))


def test_a_probe_builds_one_module_for_all_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def counting(model: Model, weights: torch.Tensor) -> torch.nn.Module:
        built.append(model)
        return torch_module(model, weights)

    torch_module = reference.torch_module
    monkeypatch.setattr(reference, "torch_module", counting)
    training = Training(rounds=1, participation=0.01, steps=1)
    next(train_plainly(random_fleet(), MODELS["mlp"], VARIANTS["ri-fedavg"], training, 3))
    assert len(built) == 2  # one to train, one to probe
