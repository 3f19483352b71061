"""Models with free leading axes against torch.nn, alone and in stacks."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.networks import flat_weights, torch_module
from fedwatt.errors import SettingError
from fedwatt.models import GRU, LSTM, MLP, Model, ModuleModel, get_loss, get_model
from fedwatt.models.model import huber, kernel_for, squared

WINDOW = 6
FEATURES = 3
MODELS = [MLP(WINDOW, FEATURES, (5, 4)), GRU(FEATURES, 4), LSTM(FEATURES, 4)]
by_kind = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@by_kind
def test_predictions_and_gradients_are_those_of_torch_nn(model: Model) -> None:
    weights = model.initial(np.random.default_rng(1))
    windows = draw(7, WINDOW, FEATURES)
    labels = draw(7, seed=2)
    twin = torch_module(model, weights)
    prediction = twin(windows)
    torch.testing.assert_close(model.predict(weights, windows), prediction, rtol=0, atol=1e-12)

    ((prediction - labels) ** 2).mean().backward()
    share = torch.full((7,), 1 / 7, dtype=torch.float64)
    gradient = model.gradient(weights, windows, labels, share, squared)
    expected = flat_weights(model, [p.grad for p in twin.parameters() if p.grad is not None])
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


@by_kind
def test_a_stack_is_its_vehicles_side_by_side(model: Model) -> None:
    weights = torch.stack([model.initial(np.random.default_rng(i)) for i in range(6)])
    weights = weights.view(2, 3, -1)
    windows = draw(2, 3, 5, WINDOW, FEATURES)
    labels = draw(2, 3, 5, seed=3)
    share = torch.full((2, 3, 5), 0.2).double()
    stacked = model.gradient(weights, windows, labels, share, squared)
    for i in range(2):
        for j in range(3):
            alone = model.gradient(weights[i, j], windows[i, j], labels[i, j], share[i, j], squared)
            torch.testing.assert_close(stacked[i, j], alone, rtol=0, atol=1e-12)


@by_kind
def test_along_a_line_equals_one_model_at_a_time(model: Model) -> None:
    weights = model.initial(np.random.default_rng(1))
    direction = draw(model.layout.size, seed=4)
    windows = draw(9, WINDOW, FEATURES)
    offsets = torch.linspace(-0.3, 0.3, 21).double()
    points = [model.predict(weights + s * direction, windows) for s in offsets]
    fast = model.along(weights, direction, offsets, windows)
    torch.testing.assert_close(fast, torch.stack(points), rtol=0, atol=1e-10)


def test_a_padded_window_has_no_say() -> None:
    model = MODELS[0]
    weights = model.initial(np.random.default_rng(1))
    windows = draw(4, WINDOW, FEATURES)
    labels = draw(4, seed=2)
    share = torch.tensor([0.5, 0.5, 0.0, 0.0]).double()
    padded = model.gradient(weights, windows, labels, share, squared)
    short = model.gradient(weights, windows[:2], labels[:2], share[:2], squared)
    torch.testing.assert_close(padded, short, rtol=0, atol=1e-14)


def test_any_module_runs_in_a_stack() -> None:
    mlp = MLP(WINDOW, FEATURES, (5, 4))
    start = mlp.initial(np.random.default_rng(1))
    module = torch_module(mlp, start)
    model = ModuleModel(module)
    flat = model.initial(np.random.default_rng(0))
    assert model.layout.size == mlp.layout.size == 124  # 18·5+5 + 5·4+4 + 4+1
    windows = draw(2, 5, WINDOW, FEATURES)
    labels = draw(2, 5, seed=3)
    share = torch.full((2, 5), 0.2).double()
    torch.testing.assert_close(model.predict(flat, windows[0]), module(windows[0]))
    stacked = model.gradient(torch.stack([flat, 2 * flat]), windows, labels, share, squared)
    expected = mlp.gradient(start, windows[0], labels[0], share[0], squared)
    own_order = flat_weights(mlp, list(model.layout.split(stacked[0]).values()))
    torch.testing.assert_close(own_order, expected, rtol=0, atol=1e-12)
    assert model.spectral_matrix == "3.weight"


def test_a_module_in_several_threads_stays_itself() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(18, 7), nn.ReLU(), nn.Linear(7, 1)).double()
    model = ModuleModel(module)
    before = [p.detach().clone() for p in module.parameters()]
    flat = model.initial(np.random.default_rng(0))
    direction = draw(model.layout.size, seed=1)
    offsets = torch.linspace(-1, 1, 21).double()
    batches = [draw(5 + k % 4, WINDOW, FEATURES, seed=k) for k in range(40)]

    def followed(windows: Tensor) -> Tensor:
        return model.along(flat, direction, offsets, windows)

    with ThreadPoolExecutor(4) as threads:
        entries = list(threads.map(followed, batches))
    for prediction, windows in zip(entries, batches, strict=True):
        assert torch.equal(prediction, followed(windows))
    for now, was in zip(module.parameters(), before, strict=True):
        assert torch.equal(now, was)


def test_a_module_with_buffers_is_refused() -> None:
    with pytest.raises(SettingError, match=r"has a buffer, .* nn.LayerNorm"):
        ModuleModel(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(18), nn.Linear(18, 1)))


def test_a_module_with_a_frozen_parameter_is_refused() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(18, 4), nn.SiLU(), nn.Linear(4, 1))
    module[1].bias.requires_grad_(False)
    with pytest.raises(SettingError, match=r"requires_grad = False, '1.bias', .* Let it train"):
        ModuleModel(module)
    module[1].bias.requires_grad_(True)
    assert ModuleModel(module).layout.size == 18 * 4 + 4 + 4 + 1


def test_a_wrong_matrix_of_a_module_is_refused() -> None:
    with pytest.raises(SettingError, match=r"no parameter 'W2'. It has: 1.weight, 1.bias"):
        ModuleModel(nn.Sequential(nn.Flatten(), nn.Linear(18, 1)), matrix="W2")


def test_the_papers_mlp_has_32897_weights() -> None:
    # 480·64 + 64 + 64·32 + 32 + 32 + 1
    assert get_model("mlp", window=60, features=8).layout.size == 32_897


def test_huber_is_quadratic_inside_and_linear_outside() -> None:
    errors = torch.tensor([-3.0, -0.5, 0.5, 3.0])
    assert huber(errors, torch.zeros(4)).tolist() == [2.5, 0.125, 0.125, 2.5]
    assert squared(errors, torch.zeros(4)).tolist() == [9.0, 0.25, 0.25, 9.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: get_model("mpl", window=60, features=8), "Did you mean 'mlp'"),
        (lambda: get_model("gru", window=60, features=8, hidden=(32, 32)), "one width"),
        (lambda: get_loss("rmse"), "Unknown loss 'rmse'"),
        (lambda: MLP(60, 8, ()), r"MLP\(hidden=\(\)\): hidden must be"),
        (lambda: MLP(0, 8), r"MLP\(window=0\)"),
        (lambda: GRU(8, 0), r"GRU\(hidden=0\)"),
    ],
)
def test_bad_models_are_refused(build, message) -> None:
    with pytest.raises(SettingError, match=message):
        build()


@pytest.mark.parametrize("loss", [squared, huber], ids=["mse", "huber"])
@pytest.mark.parametrize("hidden", [(7,), (6, 5), (6, 5, 4)], ids=str)
def test_the_mlps_gradient_by_hand_is_autograds(hidden: tuple[int, ...], loss) -> None:
    model = MLP(WINDOW, FEATURES, hidden)
    weights = torch.stack([model.initial(np.random.default_rng(i)) for i in range(3)])
    windows = draw(3, 9, WINDOW, FEATURES)
    labels = 2 * draw(3, 9, seed=5)
    share = draw(3, 9, seed=6).abs()

    def total(parts):
        return (share * loss(model.head(parts, model.represent(parts, windows)), labels)).sum()

    by_hand = model.gradient(weights, windows, labels, share, loss)
    torch.testing.assert_close(by_hand, model.gradient_of(total, weights), rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", [squared, huber], ids=["mse", "huber"])
def test_slopes_are_derivatives(loss) -> None:
    prediction = torch.tensor([-2.0, -0.3, 0.0, 0.4, 3.0], dtype=torch.float64, requires_grad=True)
    target = torch.full((5,), 0.1, dtype=torch.float64)
    (slope,) = torch.autograd.grad(loss(prediction, target).sum(), prediction)
    torch.testing.assert_close(loss.slope(prediction.detach(), target), slope)


@by_kind
@pytest.mark.parametrize("loss", [squared, huber], ids=["mse", "huber"])
def test_a_prepared_gradient_is_autograds_again_and_again(model: Model, loss) -> None:
    # The same buffers serve three steps; nothing of one may be left in the next.
    weights = torch.stack([model.initial(np.random.default_rng(i)) for i in range(3)])
    windows = torch.empty(3, 9, WINDOW, FEATURES).double()
    gradient = torch.empty_like(weights)
    fill = model.fill(weights, windows, gradient, loss)
    for seed in range(3):
        windows.copy_(draw(3, 9, WINDOW, FEATURES, seed=seed))
        weights.mul_(1.1)
        labels = 2 * draw(3, 9, seed=seed + 10)
        share = draw(3, 9, seed=seed + 20).abs()

        def total(parts, labels=labels, share=share):
            return (share * loss(model.head(parts, model.represent(parts, windows)), labels)).sum()

        fill(labels, share)
        torch.testing.assert_close(gradient, model.gradient_of(total, weights), rtol=0, atol=1e-10)


@by_kind
def test_lines_in_several_directions_are_each_its_own(model: Model) -> None:
    weights = model.initial(np.random.default_rng(1))
    directions = draw(2, 3, model.layout.size, seed=4)
    windows = draw(9, WINDOW, FEATURES)
    offsets = torch.linspace(-0.02, 0.03, 11).double()
    together = model.along(weights, directions, offsets, windows)
    assert together.shape == (2, 3, 11, 9)
    alone = model.along(weights, directions[1, 2], offsets, windows)
    torch.testing.assert_close(together[1, 2], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [1e-4, 0.05, 3.0])
@pytest.mark.parametrize("hidden", [(7,), (6, 5), (6, 5, 4)], ids=str)
def test_lines_that_cross_kinks_of_an_mlp(hidden: tuple[int, ...], reach: float) -> None:
    # No unit switches on the short line, some do on the next, nearly all on the long one; units
    # that are exactly 0 and windows of zeros are among them.
    model = MLP(WINDOW, FEATURES, hidden)
    weights = model.initial(np.random.default_rng(1))
    directions = draw(4, model.layout.size)
    model.layout.split(weights)["hidden1.bias"][0] = 0.0
    windows = draw(12, WINDOW, FEATURES, seed=7)
    offsets = torch.linspace(-reach, reach, 21).double()
    windows[0] = 0.0
    predictions = model.along(weights, directions, offsets, windows)
    for direction, line in zip(directions, predictions, strict=True):
        for s, point in zip(offsets, line, strict=True):
            naive = model.predict(weights + s * direction, windows)
            torch.testing.assert_close(point, naive, rtol=1e-12, atol=1e-12)


def test_an_mlp_in_a_stack_is_the_same_alone() -> None:
    # What a vehicle computes must not depend on how many others a simulator trains beside it. On
    # most processors not even the last bit does, but a product may be split differently.
    model = MLP(60, 8)
    weights = torch.stack([model.initial(np.random.default_rng(i)) for i in range(5)]).float()
    windows = draw(5, 64, 60, 8).float()
    labels = draw(5, 64, seed=3).float()
    share = torch.full((5, 64), 1 / 64)
    stacked = model.gradient(weights, windows, labels, share, squared)
    for i in range(5):
        alone = model.gradient(weights[i], windows[i], labels[i], share[i], squared)
        torch.testing.assert_close(stacked[i], alone, rtol=1e-5, atol=1e-7)


class Tripled(MLP):
    def head(self, parts, representation):
        return 3 * super().head(parts, representation)


class TripledGRU(GRU):
    def head(self, parts, representation):
        return 3 * super().head(parts, representation)


class Forgetful(GRU):
    def advance(self, state, inputs, recurrent):
        (h,) = super().advance(state, inputs, recurrent)
        return (h / 2,)


class Awake(LSTM):
    def rest(self, inputs):
        return tuple(1 + part for part in super().rest(inputs))


@pytest.mark.parametrize(
    "model", [Tripled(4, 3, (5,)), TripledGRU(3, 5), Forgetful(3, 5), Awake(3, 5)], ids=str
)
def test_what_is_overridden_counts_everywhere(model: Model) -> None:
    rng = np.random.default_rng(3)
    weights = torch.stack([model.initial(rng), model.initial(rng)])
    windows, labels = (
        torch.from_numpy(rng.standard_normal(shape)) for shape in ((2, 6, 4, 3), (2, 6))
    )
    share = torch.full_like(labels, 1 / 6)
    through = weights.clone().requires_grad_()
    total = (share * squared(model.predict(through, windows), labels)).sum()
    (expected,) = torch.autograd.grad(total, through)
    buffer = torch.empty_like(weights)
    model.fill(weights, windows, buffer, squared)(labels, share)
    for gradient in (buffer, model.gradient(weights, windows, labels, share, squared)):
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)
    direction = weights[1:] - weights[:1]
    offsets = torch.tensor([0.0, 0.5], dtype=torch.float64)
    line = model.along(weights[0], direction, offsets, windows[0])
    middle = model.predict(weights.mean(dim=0), windows[0])
    torch.testing.assert_close(line[0, 1], middle, rtol=1e-12, atol=1e-14)
    assert kernel_for(model).step(model, 6, 4) is None
