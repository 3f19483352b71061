"""Training block by block on a processor against the stack that defines it."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training, blocks, compiled, stack
from fedwatt.federation.blocks import cut, train_blocks
from fedwatt.federation.compiled import Compiled
from fedwatt.federation.fused import Fused, fused_step
from fedwatt.methods import METHODS, Proximal, get
from fedwatt.models import GRU, LSTM, MLP, Layout
from tests.federation.plain_stack import train_stack
from tests.federation.toys import random_fleet

SMALL = MLP(4, 8, (6, 5))


def trained(monkeypatch, train, method: str, model=SMALL, precision="float64", loss="mse"):
    """Weights after two rounds on vehicles of very different size, with `train` for the steps."""
    monkeypatch.setattr(stack, "train_blocks", train)
    training = Training(rounds=2, participation=0.7, batch=16, precision=precision, loss=loss)
    federation = Federation(random_fleet(), model, training=training, seeds=(1, 2), device="cpu")
    return federation.train(get(method)).state.weights


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_one_vehicle_train_as_the_stack_does(method: str, monkeypatch) -> None:
    expected = trained(monkeypatch, train_stack, method)
    monkeypatch.setattr(blocks, "CACHE_BYTES", 1)
    # Float64, and products of a stack round as those of its vehicles do, or nearly so.
    torch.testing.assert_close(
        trained(monkeypatch, train_blocks, method), expected, rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("model", [GRU(8, 3), LSTM(8, 3)], ids=["GRU", "LSTM"])
def test_blocks_of_recurrent_models(model, monkeypatch) -> None:
    expected = trained(monkeypatch, train_stack, "fo-ri-fedavg", model)
    monkeypatch.setattr(blocks, "CACHE_BYTES", 1)
    found = trained(monkeypatch, train_blocks, "fo-ri-fedavg", model)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("method", ["fedprox", "fo-ri-fedavg"])
def test_steps_in_c_are_torchs_to_rounding(method: str, monkeypatch) -> None:
    if fused_step([Proximal()], [{}], 0.1, torch.zeros(1, 1)) is None:
        pytest.skip("no C compiler is installed")
    taken: list[bool] = []
    step = Fused.__call__

    def counted(self: Fused, *tensors: Tensor, first: bool) -> None:
        taken.append(first)
        step(self, *tensors, first=first)

    monkeypatch.setattr(Fused, "__call__", counted)
    monkeypatch.setattr(blocks, "compiled_round", lambda *_: None)
    found = trained(monkeypatch, train_blocks, method, precision="float32")
    assert True in taken and False in taken
    monkeypatch.setattr(blocks, "fused_step", lambda *_: None)
    plain = trained(monkeypatch, train_blocks, method, precision="float32")
    # Two rounds of up to eight steps, each good to about a hundred roundings of 6e-8.
    torch.testing.assert_close(found, plain, rtol=0, atol=2e-5)


@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("method", ["fedavg", "fo-ri-fedavg"])
@pytest.mark.parametrize(
    "model",
    # Widths that no vector or tile divides, and gradients of more rows than are moved at once.
    [SMALL, MLP(4, 8, (7,)), MLP(4, 8, (66, 41, 17)), GRU(8, 5), LSTM(8, 5)],
    ids=["MLP", "one layer", "wide", "GRU", "LSTM"],
)
def test_a_round_in_c_is_torchs_to_rounding(model, method: str, loss: str, monkeypatch) -> None:
    if fused_step([Proximal()], [{}], 0.1, torch.zeros(1, 1)) is None:
        pytest.skip("no C compiler is installed")
    called: list[int] = []
    call = Compiled.__call__

    def counted(self: Compiled, row: int, steps: int) -> tuple[Tensor, float]:
        called.append(steps)
        return call(self, row, steps)

    monkeypatch.setattr(Compiled, "__call__", counted)
    found = trained(monkeypatch, train_blocks, method, model, "float32", loss)
    # 70, 33, 128 and 5 windows in batches of 16: odd and even numbers of steps, short batches.
    assert {1, 3, 5, 8} >= set(called) and len(set(called)) >= 3
    monkeypatch.setattr(blocks, "compiled_round", lambda *_: None)
    plain = trained(monkeypatch, train_blocks, method, model, "float32", loss)
    torch.testing.assert_close(found, plain, rtol=0, atol=2e-5)


@dataclass(frozen=True)
class Halved(MLP):
    def head(self, parts, representation):
        return super().head(parts, representation) / 2


@dataclass(frozen=True)
class Doubled(MLP):
    def prepared(self, weights, windows, gradient, loss):
        fill = super().prepared(weights, windows, gradient, loss)

        def twice(labels, share):
            fill(labels, 2 * share)

        return twice


@dataclass(frozen=True)
class Reversed(MLP):
    @property
    def layout(self):
        return Layout(dict(reversed(super().layout.shapes.items())))


@pytest.mark.parametrize(
    ("kind", "method"),
    # FedEL's wraps the model. It needs a layer's matrix before its bias.
    [(Halved, "fedavg"), (Doubled, "fedavg"), (Reversed, "fedavg"), (Doubled, "fedel")],
)
def test_a_model_that_departs_from_one_with_c_is_left_to_torch(
    kind: type[MLP], method: str, monkeypatch
) -> None:
    monkeypatch.setattr(Compiled, "__call__", None)  # would fail if it were called
    trained(monkeypatch, train_blocks, method, kind(4, 8, (6, 5)), precision="float32")


def test_only_models_that_multiply_in_c_need_the_library(monkeypatch) -> None:
    if fused_step([Proximal()], [{}], 0.1, torch.zeros(1, 1)) is None:
        pytest.skip("no C compiler is installed")
    called: list[int] = []
    call = Compiled.__call__

    def counted(self: Compiled, row: int, steps: int) -> tuple[Tensor, float]:
        called.append(row)
        return call(self, row, steps)

    monkeypatch.setattr(compiled, "_sgemm", lambda: None)
    monkeypatch.setattr(Compiled, "__call__", counted)
    trained(monkeypatch, train_blocks, "fedavg", GRU(8, 5), precision="float32")
    assert not called
    trained(monkeypatch, train_blocks, "fedavg", precision="float32")
    assert called


@pytest.mark.parametrize("model", [MLP(9, 8), MLP(4, 9), GRU(11), LSTM(7)], ids=repr)
def test_a_model_for_other_windows_never_reads_past_the_series(model, monkeypatch) -> None:
    training = Training(rounds=1, evaluate_every=2)
    with pytest.raises(SettingError, match=r"cannot read .* 4 samples by 8 features: it was made"):
        Federation(random_fleet(), model, training=training, device="cpu")
    # Nor if it comes in by another way: torch refuses it, and C is not asked.
    monkeypatch.setattr(Compiled, "__call__", None)
    federation = Federation(random_fleet(), SMALL, training=training, device="cpu")
    monkeypatch.setattr(federation, "evaluate", lambda weights: [])
    federation.model = model
    method = get("fedavg")
    state, _ = federation.start(method)
    with pytest.raises(RuntimeError, match=r"shape|size"):
        federation.advance(method, state)


def test_the_number_of_threads_changes_nothing(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "CACHE_BYTES", 1)
    results: list[Tensor] = []
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(trained(monkeypatch, train_blocks, "fo-ri-fedavg", precision="float32"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_blocks_are_even_and_complete() -> None:
    for rows in range(1, 40):
        for limit in (1, 3, 8, 50):
            parts = list(cut(rows, limit))
            assert [row for part in parts for row in range(rows)[part]] == list(range(rows))
            sizes = [part.stop - part.start for part in parts]
            assert max(sizes) <= limit and max(sizes) - min(sizes) <= 1
