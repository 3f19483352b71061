"""The row of a round: which vehicles and windows count in which column."""

from math import sqrt

import pytest
from pytest import approx

from fedwatt.federation.records import PERSONAL
from fedwatt.methods import get
from tests.federation.toys import line_client, line_federation

# Every model predicts 0.5 x before the first round, so with x = 0 the error is the label.
STILL = (0.0, 0.0)


def first_row() -> dict:
    """Round 0 of two vehicles that train and one that is held out.

    a: three training windows, one test window with an error of 1 Wh
    b: one training window, three test windows with errors of 3 Wh
    c: held out, with errors of 10 Wh
    """
    a = line_client("a", train=[STILL] * 3, validation=[(0, 2)], test=[(0, 1)])
    b = line_client("b", train=[STILL], validation=[(0, -2)], test=[(0, 3)] * 3)
    c = line_client(
        "c", held_out=True, train=[STILL] * 4, validation=[(0, 10)], test=[(0, -10)] * 2
    )
    federation = line_federation((a, b, c), training={"rounds": 1})
    return federation.train("fedavg").history.rounds[0]


def test_headline_errors_are_those_of_vehicles_that_train() -> None:
    row = first_row()
    assert row["test_rmse"] == approx(sqrt((1 + 3 * 9) / 4))
    assert row["test_mae"] == approx((1 + 3 * 3) / 4)
    assert row["test_rmse_macro"] == approx((1 + 3) / 2)
    assert row["validation_rmse"] == approx(2)


def test_held_out_vehicles_have_a_column_of_their_own() -> None:
    assert first_row()["held_out_rmse"] == approx(10)


def test_the_weighted_error_weighs_by_training_windows() -> None:
    # By test windows it would be (1·1 + 3·3) / 4 = 2.5.
    assert first_row()["test_rmse_weighted"] == approx((3 * 1 + 1 * 3) / 4)


def test_drift_and_steps_are_of_the_replies_that_count() -> None:
    # y = 2 x: ∇F = 2 x² (w - 2) = -3 for a and -12 for b, and w moves by a quarter of that. The
    # label of c is not a number, so its reply is rejected.
    a = line_client("a", train=[(1, 2)], validation=[STILL], test=[STILL])
    b = line_client("b", train=[(2, 4)], validation=[STILL], test=[STILL])
    c = line_client("c", train=[(1, float("nan"))], validation=[STILL], test=[STILL])
    history = line_federation((a, b, c), training={"rounds": 1}).train("fedavg").history
    row = history.rounds[1]
    assert row["drift_mean"] == approx((0.75 + 3.0) / 2)
    assert row["drift_cv"] == approx((3.0 - 0.75) / 2 / 1.875)
    assert (row["participants"], row["replies"], row["rejected"], row["steps"]) == (3, 2, 1, 2)
    # E₁ = (0.75² + 3²)/2, E₂ = 1.875²; Σp² = ½.
    assert row["agreement"] == approx((1.875**2 / 4.78125 - 0.5) / 0.5)


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_a_round_weighs_replies_by_training_windows(seeds: tuple[int, ...]) -> None:
    # Displacements 0.75 (one window) and -0.75 (three), whatever they have to test on.
    a = line_client("a", train=[(1, 2)], validation=[STILL], test=[STILL] * 5)
    b = line_client("b", train=[(1, -1)] * 3, validation=[STILL], test=[STILL])
    state = line_federation((a, b), seeds=seeds, training={"rounds": 1}).train("fedavg").state
    assert state.weights.flatten().tolist() == approx([0.5 + (0.75 - 3 * 0.75) / 4] * len(seeds))


# One step takes w = 0.5 half the way to the label: to 1.25 and to -0.25, and their mean stays.
FAR = (
    line_client("a", train=[(1, 2)], validation=[(1, 2)], test=[(1, 2)] * 3),
    line_client("b", train=[(1, -1)], validation=[(1, -2)], test=[(1, -1.25)]),
    line_client("c", held_out=True, train=[(1, 9)], validation=[(1, 0)], test=[(1, 3)]),
)


def test_personal_columns_are_of_the_models_that_vehicles_drive_with() -> None:
    federation = line_federation(FAR, training={"rounds": 1})
    first, row = federation.train(get("ditto", lam_personal=0.0)).history.rounds
    assert row["test_rmse"] == approx(sqrt((3 * 1.5**2 + 1.75**2) / 4))
    assert row["personal_rmse"] == approx(sqrt((3 * 0.75**2 + 1.0**2) / 4))
    assert row["personal_rmse_macro"] == approx((0.75 + 1.0) / 2)
    assert row["personal_validation_rmse"] == approx(sqrt((0.75**2 + 1.75**2) / 2))
    # A vehicle that never took part drives with the global model, as all did before round 1.
    assert row["personal_held_out_rmse"] == approx(2.5) == row["held_out_rmse"]
    assert first["personal_rmse"] == first["test_rmse"]


def test_without_models_of_their_own_vehicles_drive_with_the_global_one() -> None:
    for row in line_federation(FAR, training={"rounds": 2}).train("fedavg").history.rounds:
        for name, of in PERSONAL.items():
            assert row[name] == row[of]
