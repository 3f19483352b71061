"""The best model is chosen by validation error, whatever its test error is."""

import pytest
import torch
from pytest import approx

from fedwatt.federation import Federation, State, Training
from fedwatt.methods import get
from fedwatt.windows import Client
from tests.federation.toys import line_client, line_federation, random_fleet


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


def test_a_run_stops_when_its_patience_is_at_an_end() -> None:
    # Validation error 0.75, 0, 0.375, 0.5625, ...: round 1 is best, and two rounds later it ends.
    federation = line_federation([pulled(1.25, 2.0)], training={"rounds": 6, "patience": 2})
    trained = federation.train("fedavg")
    assert [row["round"] for row in trained.history.rounds] == [0, 1, 2, 3]
    assert trained.state.stopped.tolist() == [3] and trained.state.best_round.tolist() == [1]
    # Where only every second round is evaluated, the best that is seen is round 2.
    seldom = {"rounds": 9, "patience": 3, "evaluate_every": 2}
    trained = line_federation([pulled(1.25, 2.0)], training=seldom).train("fedavg")
    assert (trained.state.best_round.item(), trained.state.stopped.item()) == (2, 6)


def test_seeds_stop_for_themselves_and_after_a_restart_at_the_same_round() -> None:
    training = Training(rounds=12, participation=0.5, batch=8, learning_rate=0.2, patience=2)
    fleet = random_fleet([40, 9, 33, 70])
    federation = Federation(fleet, training=training, seeds=(1, 2, 3))
    trained = federation.train("fedavg")
    ends = trained.state.stopped.tolist()
    assert len(set(ends)) > 1  # the stack goes on without those that have stopped
    for place, seed in enumerate(federation.seeds):
        alone = Federation(fleet, training=training, seeds=(seed,)).train("fedavg")
        assert alone.state.stopped.item() == ends[place]
        assert torch.equal(alone.state.weights[0], trained.state.weights[place])
        assert torch.equal(alone.state.final_weights[0], trained.state.final_weights[place])
        rows = [row for row in trained.history.rounds if row["seed"] == seed]
        *before, last = (row["final_test_rmse"] for row in rows)
        assert last == alone.history.rounds[-1]["final_test_rmse"]
        assert all(value != value for value in before)  # unknown until the seed has stopped
    state, _ = federation.start(get("fedavg"))
    while not federation.finished(state):
        state, _ = federation.advance(
            get("fedavg"), State.from_tensors(state.round, state.tensors())
        )
    assert torch.equal(state.stopped, trained.state.stopped)
    assert torch.equal(state.weights, trained.state.weights)
