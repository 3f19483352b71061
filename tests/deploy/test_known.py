"""What the server of a real fleet remembers of its vehicles, in a state and back."""

import pytest

pytest.importorskip("flwr")

import torch

from fedwatt.deploy.known import Known
from fedwatt.deploy.rest import Rest
from fedwatt.errors import RunError
from fedwatt.metrics import ErrorSums
from fedwatt.privacy.check_words import Made

SUMS = ErrorSums(9, 0.1, 2.5, 1 / 3, 7e-12, 4)


@pytest.mark.parametrize(
    "known",
    [
        Known(),
        Known({"car-2": 0, "Čar 10": 7}, {"car-2": SUMS, "another": ErrorSums(windows=1)}),
        Known({"b": 3}, rests={"train": {"a": Rest(2, 9)}, "evaluate": {"b": Rest(1, 0)}}),
        Known(made=Made(bytes(range(32)), 12_345.0, 99.5, 7, (1 / 3, -2e9, 0.1, 4.0))),
    ],
)
def test_it_survives_a_checkpoint_to_the_last_bit(known: Known) -> None:
    assert Known.unpacked(known.packed()) == known


def test_its_tensors_do_not_depend_on_the_order_in_which_vehicles_came() -> None:
    one, other = Known({"a": 1, "b": 2}).packed(), Known({"b": 2, "a": 1}).packed()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_state_that_knows_nothing_of_vehicles_is_refused() -> None:
    with pytest.raises(RunError, match="which replies of vehicles counted"):
        Known.unpacked({})
