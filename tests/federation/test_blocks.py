"""Training block by block on a processor against the stack that defines it."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedwatt.federation import Federation, Training, blocks, stack
from fedwatt.federation.blocks import cut, train_blocks
from fedwatt.federation.compiled import Compiled
from fedwatt.federation.fused import Fused, fused_step
from fedwatt.methods import METHODS, Proximal, get
from fedwatt.models import GRU, LSTM, MLP, Model
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
    [SMALL, MLP(4, 8, (7,)), GRU(8, 5), LSTM(8, 5)],
    ids=["MLP", "one layer", "GRU", "LSTM"],
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

    def gradient(self, *batch):
        return Model.gradient(self, *batch)

    def prepared(self, *buffers):
        return Model.prepared(self, *buffers)


def test_a_model_that_departs_from_one_with_c_is_left_to_torch(monkeypatch) -> None:
    monkeypatch.setattr(Compiled, "__call__", None)  # would fail if it were called
    trained(monkeypatch, train_blocks, "fedavg", Halved(4, 8, (6, 5)), precision="float32")


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
