"""Training on a processor, by torch and by C, against the plain engine."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.engine import cpu, plain, together
from fedwatt.engine.cpu import cut
from fedwatt.engine.job import Job
from fedwatt.engine.kernels import c_compiler, fused_step, whole_round
from fedwatt.engine.kernels.fused_step import FusedStep
from fedwatt.engine.kernels.whole_round import WholeRound
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import METHODS, LocalRule, Method, get
from fedwatt.methods.catalogue import LOCAL_RULES
from fedwatt.models import GRU, LSTM, MLP, Layout, Model
from tests.federation.toys import random_fleet

SMALL = MLP(4, 8, (6, 5))
RECURRENT = pytest.mark.parametrize("model", [GRU(8, 3), LSTM(8, 3)], ids=["GRU", "LSTM"])
compiler_needed = pytest.mark.skipif(
    c_compiler.compiled("int one(void) { return 1; }") is None, reason="no C compiler"
)


def trained(
    method: str | Method, model: Model = SMALL, precision: str = "float64", loss: str = "mse"
):
    """Weights after two rounds on vehicles of very different size."""
    training = Training(rounds=2, participation=0.7, batch=16, precision=precision, loss=loss)
    federation = Federation(random_fleet(), model, training=training, seeds=(1, 2), device="cpu")
    return federation.train(method).state.weights


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch):
    """`runs.trained`, with the plain engine."""

    def run(*inputs, **more) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(together.cpu, "train", lambda job, watch: plain.train(job))
            return trained(*inputs, **more)

    return run


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_one_vehicle_train_as_the_plain_engine_does(
    method: str, plainly, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plainly(method)
    monkeypatch.setattr(cpu, "CACHE_BYTES", 1)
    # Float64, and products of a stack round as those of its vehicles do, or nearly so.
    torch.testing.assert_close(trained(method), expected, rtol=0, atol=1e-11)


@RECURRENT
def test_blocks_of_recurrent_models(model, plainly, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plainly("fo-ri-fedavg", model)
    monkeypatch.setattr(cpu, "CACHE_BYTES", 1)
    result = trained("fo-ri-fedavg", model)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-11)


@compiler_needed
@pytest.mark.parametrize("method", ["fedprox", "fo-ri-fedavg"])
def test_fused_steps_are_plain_to_rounding(method: str, plainly, monkeypatch) -> None:
    taken: list[bool] = []
    step = FusedStep.__call__

    def counted(self: FusedStep, *tensors: Tensor, first: bool) -> None:
        taken.append(first)
        step(self, *tensors, first=first)

    monkeypatch.setattr(FusedStep, "__call__", counted)
    monkeypatch.setattr(cpu, "whole_round", lambda job: None)
    result = trained(method, precision="float32")
    assert True in taken and False in taken
    # Two rounds of up to eight steps, each good to about a hundred roundings of 6e-8.
    torch.testing.assert_close(result, plainly(method, precision="float32"), rtol=0, atol=2e-5)


@compiler_needed
@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize("method", ["fedavg", "fo-ri-fedavg"])
@pytest.mark.parametrize(
    "model",
    # Widths that no vector or tile divides, and gradients of more rows than are moved at once.
    [SMALL, MLP(4, 8, (7,)), MLP(4, 8, (66, 41, 17)), GRU(8, 5), LSTM(8, 5)],
    ids=["MLP", "one layer", "wide", "GRU", "LSTM"],
)
def test_a_whole_round_in_c_is_plain_to_rounding(
    model, method: str, loss: str, plainly, monkeypatch
) -> None:
    called = calls_of_whole_rounds(monkeypatch)
    result = trained(method, model, "float32", loss)
    # 70, 33, 128 and 5 windows in batches of 16: odd and even numbers of steps, short batches.
    assert {1, 3, 5, 8} >= set(called) and len(set(called)) >= 3
    torch.testing.assert_close(result, plainly(method, model, "float32", loss), rtol=0, atol=2e-5)


@compiler_needed
@pytest.mark.parametrize("method", [*METHODS, *LOCAL_RULES])
def test_every_method_in_float32_is_plain_to_rounding(method: str, plainly) -> None:
    expected = plainly(method, precision="float32")
    torch.testing.assert_close(trained(method, precision="float32"), expected, rtol=0, atol=5e-5)


@dataclass(frozen=True, kw_only=True)
class HeavyBall(LocalRule):
    """Looks back, and does not say so."""

    def direction(self, gradient, weights, previous, plan):
        return gradient if previous is None else gradient - 5 * (weights - previous)


@dataclass(frozen=True, kw_only=True)
class Small(LocalRule):
    """Adds to the loss, and does not say so."""

    def penalty(self, representation, model, windows, anchor, plan):
        return 10 * representation.square().mean(dim=-1)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", [HeavyBall, Small])
def test_what_a_rule_overrides_counts_without_being_declared(
    kind: type[LocalRule], precision: str, plainly
) -> None:
    method = Method("own", (kind(),))
    result = trained(method, precision=precision)
    torch.testing.assert_close(result, plainly(method, precision=precision), rtol=0, atol=5e-5)
    assert (result - trained("fedavg", precision=precision)).abs().max() > 1e-3
    assert not any(get(name).local[0].looks_back for name in ("fedcm", "mimelite", "fedrep"))


def calls_of_whole_rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of every call of C, as it is made."""
    called: list[int] = []
    call = WholeRound.__call__

    def counted(self: WholeRound, row: int, steps: int) -> tuple[Tensor, float]:
        called.append(steps)
        return call(self, row, steps)

    monkeypatch.setattr(WholeRound, "__call__", counted)
    return called


@dataclass(frozen=True)
class Halved(MLP):
    def head(self, parts, representation):
        return super().head(parts, representation) / 2


@dataclass(frozen=True)
class Reversed(MLP):
    @property
    def layout(self):
        return Layout(dict(reversed(super().layout.shapes.items())))


@pytest.mark.parametrize(
    ("kind", "method"),
    # FedEL's wraps the model. It needs a layer's matrix before its bias.
    [(Halved, "fedavg"), (Reversed, "fedavg"), (Halved, "fedel")],
)
def test_a_subclass_is_never_served_by_its_parents_kernel(
    kind: type[MLP], method: str, plainly, monkeypatch
) -> None:
    monkeypatch.setattr(WholeRound, "__call__", None)  # would fail if it were called
    model = kind(4, 8, (6, 5))
    result = trained(method, model, precision="float32")
    torch.testing.assert_close(result, plainly(method, model, "float32"), rtol=0, atol=2e-5)


@compiler_needed
def test_only_models_that_multiply_in_c_need_the_library(monkeypatch) -> None:
    called = calls_of_whole_rounds(monkeypatch)
    monkeypatch.setattr(whole_round, "_sgemm", lambda: None)
    trained("fedavg", GRU(8, 5), precision="float32")
    assert not called
    trained("fedavg", precision="float32")
    assert called


@pytest.mark.parametrize("model", [MLP(9, 8), MLP(4, 9), GRU(11), LSTM(7)], ids=repr)
def test_a_model_for_other_windows_never_reads_past_the_series(model, monkeypatch) -> None:
    training = Training(rounds=1, evaluate_every=2)
    with pytest.raises(SettingError, match=r"cannot read .* 4 samples by 8 features: it was made"):
        Federation(random_fleet(), model, training=training, device="cpu")
    # Nor if it comes in by another way: torch refuses it, and C is not asked.
    monkeypatch.setattr(WholeRound, "__call__", None)
    job = a_job()
    anchor = model.initial(np.random.default_rng(0)).float()
    wrong = Job((), (), model, job.loss, anchor.expand(len(job.steps), -1), 0.1, job.batches)
    with pytest.raises(RuntimeError, match=r"shape|size"):
        together.train(wrong)


def a_job(method: str = "fedavg") -> Job:
    """The first round of a method on the toy fleet, as it is handed to an engine."""
    caught: list[Job] = []

    def catch(job: Job, watch) -> Tensor:
        caught.append(job)
        return plain.train(job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together.cpu, "train", catch)
        trained(method, precision="float32")
    return caught[0]


@compiler_needed
@pytest.mark.parametrize("broken", ["mlp.c", "trace.c"])
def test_a_kernel_that_does_not_compile_is_told_and_left_to_torch(
    broken: str, plainly, monkeypatch, tmp_path
) -> None:
    expected = plainly("fedprox", precision="float32")
    path = tmp_path / broken
    path.write_text("this is no C")
    if broken == "mlp.c":
        monkeypatch.setattr("fedwatt.engine.kernels.mlp.SOURCE", path)
    else:
        monkeypatch.setattr(fused_step, "PRELUDE", path)
    monkeypatch.setattr(fused_step, "_steps", {})
    with pytest.warns(c_compiler.SlowerInTorch, match="(?s)says: .*error"):
        result = trained("fedprox", precision="float32")
    torch.testing.assert_close(result, expected, rtol=0, atol=2e-5)


def test_the_number_of_threads_changes_nothing(monkeypatch) -> None:
    monkeypatch.setattr(cpu, "CACHE_BYTES", 1)
    results: list[Tensor] = []
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(trained("fo-ri-fedavg", precision="float32"))
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
