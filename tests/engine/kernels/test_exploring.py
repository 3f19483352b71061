"""Rules that explore, in C: which can be told, and that a round is what torch makes of it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedwatt.engine.kernels.exploring import FOUND, traced_points, vectors
from fedwatt.engine.kernels.trace import COLUMNS, ROWS, Untraceable
from fedwatt.federation import Federation, Training
from fedwatt.methods import LocalRule, Method, Rows, StepLoss, get
from fedwatt.models import GRU, MLP, Model
from tests.engine.test_cpu import calls_of_whole_rounds, compiler_needed
from tests.federation.toys import random_fleet

Explore = Callable[[StepLoss, Tensor], Tensor]


def rule(function: Explore) -> LocalRule:
    @dataclass(frozen=True, kw_only=True)
    class UserRule(LocalRule):
        def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
            return function(loss, weights)

    return UserRule()


def points(*functions: Explore) -> tuple[str, ...]:
    """The results of all points, traced."""
    inputs = {name: torch.rand(ROWS, COLUMNS) for name in ("weight", "anchor", *FOUND)}
    inputs["rate"] = torch.rand(ROWS, 1)
    rules = [rule(function) for function in functions]
    result = traced_points(rules, [{} for _ in rules], inputs)
    return tuple(point.result for point in result)


def ahead(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights - loss.learning_rate * loss.gradient(weights))


def uphill(loss: StepLoss, weights: Tensor) -> Tensor:
    gradient = loss.gradient(weights)
    return loss.gradient(weights + gradient / (1e-9 + gradient.square().sum(-1, keepdim=True)))


def shifted(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights * 1.01)


def mixed(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights) + loss.gradient(weights * 2)


def first_one(loss: StepLoss, weights: Tensor) -> Tensor:
    gradient = loss.gradient(weights)
    loss.gradient(weights * 2)
    return gradient


def by_value(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights * loss.value(weights)[:, None])


def decides(loss: StepLoss, weights: Tensor) -> Tensor:
    gradient = loss.gradient(weights)
    return gradient if gradient[0, 0] > 0 else loss.gradient(weights * 2)


def by_width(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights + loss.gradient(weights) / weights.shape[-1] ** 0.5)


def by_count(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights + loss.gradient(weights) / weights.numel())


def by_list(loss: StepLoss, weights: Tensor) -> Tensor:
    large = loss.gradient(weights).norm(dim=-1).tolist()[0] > 1
    return loss.gradient(weights * (2 if large else 1))


def by_array(loss: StepLoss, weights: Tensor) -> Tensor:
    large = loss.gradient(weights).norm(dim=-1).numpy()[0] > 1
    return loss.gradient(weights * (2 if large else 1))


def in_whole_numbers(loss: StepLoss, weights: Tensor) -> Tensor:
    return loss.gradient(weights + (100 * loss.gradient(weights)).int().float())


def five(loss: StepLoss, weights: Tensor) -> Tensor:
    for _ in range(5):
        gradient = loss.gradient(weights)
    return gradient


def test_a_point_is_told_for_every_gradient() -> None:
    assert points(ahead)[0] == "weight" and points(ahead)[1] != "weight"
    assert len(points(shifted)) == 1 and points(shifted)[0] != "weight"
    # Two gradients for each of the two that the rule behind it asks for.
    assert len(points(ahead, uphill)) == 4


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (mixed, "does not return the last gradient"),
        (first_one, "does not return the last gradient"),
        (by_value, "asks for the loss itself"),
        (decides, "part of a tensor"),
        (five, "more than 4 gradients"),
        (by_width, "reads how many weights or vehicles"),
        (by_count, "reads how many weights or vehicles"),
        (by_list, "reads values out of a tensor"),
        (by_array, "reads values out of a tensor"),
        (in_whole_numbers, "makes torch.int32 of torch.float32"),
    ],
)
def test_what_is_more_than_points_is_refused(function: Explore, why: str) -> None:
    with pytest.raises(Untraceable, match=why):
        points(function)


def test_memory_is_for_what_has_to_be_kept() -> None:
    inputs = {name: torch.rand(ROWS, COLUMNS) for name in ("weight", "anchor", *FOUND)}
    inputs["rate"] = torch.rand(ROWS, 1)

    def needed(*functions: Explore) -> int:
        rules = [rule(function) for function in functions]
        return vectors(traced_points(rules, [{} for _ in rules], inputs))

    assert needed() == 0  # the gradient at the weights moves them
    assert needed(shifted) == 1  # the point
    assert needed(ahead) == 1  # the first gradient, and then the point in its place
    assert needed(ahead, uphill) == 3


def trained(method: Method | str, model: Model, precision: str = "float32") -> Tensor:
    federation = Federation(
        random_fleet([40, 9, 33, 70]),
        model,
        training=Training(rounds=2, participation=0.75, batch=8, precision=precision),
        seeds=(1, 2),
        device="cpu",
    )
    return federation.train(method).state.weights.double()


METHODS = {
    "sam": get("sam"),
    "mofedsam": get("fedcm+sharpness-aware"),
    "sam and a preconditioner that looks back": get("fo-fedavg+sharpness-aware"),
    "a shift alone": Method("shifted", (rule(shifted),)),
    "four gradients": Method("nested", (rule(ahead), rule(uphill))),
}


@compiler_needed
@pytest.mark.parametrize("model", [MLP(4, 8, (66, 17)), GRU(8, 5)], ids=["MLP", "GRU"])
@pytest.mark.parametrize("name", METHODS)
def test_a_round_in_c_is_what_torch_makes_in_float64(
    name: str, model: MLP | GRU, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = calls_of_whole_rounds(monkeypatch)
    result = trained(METHODS[name], model)
    assert called
    # Two rounds of up to nine steps in float32; float64 has no C.
    torch.testing.assert_close(result, trained(METHODS[name], model, "float64"), rtol=0, atol=5e-5)


@compiler_needed
def test_without_a_distance_it_is_fedavg_bit_for_bit() -> None:
    model = MLP(4, 8, (66, 17))
    assert torch.equal(trained(get("sam", rho_sam=0.0), model), trained("fedavg", model))
