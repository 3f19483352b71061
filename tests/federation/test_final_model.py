"""The final model: the mean of the best-validated and the last one, unless it is broken."""

import torch
from pytest import approx

from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.windows import Client
from tests.federation.test_loop import Answering
from tests.federation.toys import line_client, line_federation, over


def pulled(*validation: float) -> Client:
    """A vehicle whose training goes from w = 0.5 over 1.25 to 1.625; its test window wants 2."""
    expected = [(1, value) for value in validation]
    return line_client("a", train=[(1, 2)], validation=expected, test=[(1, 2)])


def trained(*validation: float):
    return line_federation([pulled(*validation)], training={"rounds": 2}).train("fedavg")


def kept_columns(outcome) -> list[tuple[float, float]]:
    rows = outcome.history.rounds
    return [(row["final_validation_rmse"], row["final_test_rmse"]) for row in rows]


def test_the_mean_of_the_best_and_the_last_model_is_kept() -> None:
    # Squared validation errors (w - 1.25)² + 1 are lowest at w = 1.25, the model of round 1. The
    # mean of 1.25 and 1.625 is off by 0.1875 there, and by 0.5625 from what the test wants.
    outcome = trained(0.25, 2.25)
    assert outcome.state.keeps_mean.tolist() == [True]
    assert outcome.state.final_weights.item() == approx(1.4375)
    *earlier, last = kept_columns(outcome)
    assert last == approx(((1 + 0.1875**2) ** 0.5, 0.5625))
    assert all(value != value for pair in earlier for value in pair)  # unknown before the end


def test_a_last_model_that_is_the_best_one_is_kept_as_it_is() -> None:
    outcome = trained(2.0)
    assert torch.equal(outcome.state.final_weights, outcome.state.weights)
    assert kept_columns(outcome)[-1] == approx((0.375, 0.375))


def test_a_broken_mean_is_not_kept() -> None:
    # The best model, w = 1.25, validates at 0.1; the mean at sqrt(0.01 + 0.1875²) = 0.2125.
    outcome = trained(1.15, 1.35)
    assert outcome.state.mean_validation.item() == approx(0.2125)
    assert outcome.state.final_weights.item() == approx(1.25)
    assert kept_columns(outcome)[-1] == approx((0.1, 0.75))


def test_a_mean_that_cannot_be_compared_is_not_kept() -> None:
    federation = line_federation([pulled(0.25, 2.25)], training={"rounds": 2})
    for evaluation in (
        ModelEvaluation(
            federation.evaluate(torch.tensor([[1.4375]]).double()), {}, comparable=False
        ),
        ModelEvaluation([None], {}),
    ):
        port = Answering(federation, evaluate_mean=lambda *_, message=evaluation: message)
        state = over(federation, port).train("fedavg").state
        assert state.final_weights.item() == approx(1.25)


def test_the_models_of_a_state_have_the_names_of_a_runs_models() -> None:
    state = trained(0.25, 2.25).state
    assert tuple(state.models) == GLOBAL_MODELS
    assert [model.item() for model in state.models.values()] == approx([1.4375, 1.25, 1.625])
