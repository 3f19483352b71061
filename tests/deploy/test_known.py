"""What the server of a real fleet remembers of its vehicles, in a state and back."""

from dataclasses import replace

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


def test_a_server_of_the_version_before_can_read_it_and_be_read() -> None:
    # A run goes on after an update, and after a rollback: names and shapes of tensors stay.
    part = bytes(32) + (3).to_bytes(4, "little")
    made = Made(bytes(32), 9.0, 3.0, 3, (1.0, 2.0), (part,))
    known = Known({"b": 3}, {"a": SUMS}, frozenset("a"), 4, 9.5, {"train": {"b": Rest(2, 9)}}, made)
    kept = {name: own.tolist() for name, own in known.packed().items()}
    assert kept == {
        "names": list(b'["a", "b"]'),
        "counted": [-1, 3],
        "validation": [[9, 0.1, 2.5, 1 / 3, 7e-12, 4], [0] * 6],
        "judges": [True, False],
        "round": 4,
        "mean_windows": 9.5,
        "rests": [[[0, 0], [0, 0]], [[2, 9], [0, 0]]],
        "made": [9, 3, 3, 1, 2],
        "exchange": [0] * 32,
        "parts": [list(part)],
    }


def test_a_question_names_parts_only_where_there_are_any() -> None:
    # Vehicles of the version before know none, and the names of kept sums depend on questions.
    made = Made(b"sum", 9.0, 3.0, 3, (1.0, 2.0))
    told = {"made.exchange", "made.weight", "made.divisor", "made.vehicles", "made.words"}
    assert Known(made=made).made_values.keys() == told
    assert Known(made=replace(made, parts=(b"part",))).made_values["made.parts"] == [b"part"]
    assert not Known().made_values


def test_a_state_that_knows_nothing_of_vehicles_is_refused() -> None:
    with pytest.raises(RunError, match="which replies of vehicles counted"):
        Known.unpacked({})
