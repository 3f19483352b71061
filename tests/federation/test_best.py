"""The best model is chosen by validation error, whatever its test error is."""

import pytest
from pytest import approx

from fedwatt.data import Client
from tests.federation.toys import line_client, line_federation


def pulled(validation: float, test: float) -> Client:
    """A vehicle whose training goes from w = 0.5 over 1.25 and 1.625 towards 2."""
    return line_client("a", train=[(1, 2)], validation=[(1, validation)], test=[(1, test)])


@pytest.mark.parametrize(
    ("validation", "test", "best_round", "errors"),
    [
        # Validation error 0, 0.75, 1.125: the untrained model is best, though it tests worst.
        (0.5, 2.0, 0, (0.0, 1.5)),
        # The other way round: 1.5, 0.75, 0.375, and the last model is best, though it tests worst.
        (2.0, 0.5, 2, (0.375, 1.125)),
        # Best in between: 0.75, 0, 0.375.
        (1.25, 2.0, 1, (0.0, 0.75)),
    ],
)
def test_validation_chooses(validation, test, best_round, errors) -> None:
    trained = line_federation([pulled(validation, test)], training={"rounds": 2}).train("fedavg")
    row = trained.history.rounds[-1]
    assert row["best_round"] == best_round
    assert (row["best_validation_rmse"], row["best_test_rmse"]) == approx(errors)
    assert trained.state.best_weights.item() == approx((0.5, 1.25, 1.625)[best_round])


def test_of_equally_good_models_the_first_is_kept() -> None:
    # With x = 0 every model has the same validation error.
    still = line_client("a", train=[(1, 2)], validation=[(0, 1)], test=[(1, 2)])
    row = line_federation([still], training={"rounds": 2}).train("fedavg").history.rounds[-1]
    assert (row["best_round"], row["best_test_rmse"]) == (0, approx(1.5))
