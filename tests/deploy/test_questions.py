"""The question of a round: what the server asks is what a vehicle reads, or refuses to."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.messages import Content
from fedwatt.deploy.questions import RoundQuestion
from fedwatt.errors import DataError

ASKED = RoundQuestion(
    3, 1, 12, 345.0, True, np.array([1.0, -2.0]), {"control": np.array([0.5, 0.25])}
)


def test_a_vehicle_reads_what_the_server_asks() -> None:
    message = ASKED.content({"run": "one"})
    assert message.values["run"] == "one"
    read = RoundQuestion.read(message, 2, "float64")
    for name in ("round", "counted", "population", "population_windows", "diagnostics"):
        assert getattr(read, name) == getattr(ASKED, name)
    assert read.weights.tolist() == [1.0, -2.0]
    assert {name: array.tolist() for name, array in read.sent.items()} == {"control": [0.5, 0.25]}


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (replace(ASKED, weights=np.zeros(3)), "no model of 2 finite float64 weights"),
        (replace(ASKED, weights=np.array([np.nan, 0.0])), "no model of 2 finite float64 weights"),
        # One model must have one digest, and all of these would be rounded to the same on board.
        (replace(ASKED, weights=np.zeros(2, np.float32)), "no model of 2 finite float64 weights"),
        (replace(ASKED, weights=np.zeros(2, np.int64)), "no model of 2 finite float64 weights"),
        (replace(ASKED, population=0), "knows no fleet"),
        (replace(ASKED, population_windows=np.nan), "knows no fleet"),
        (replace(ASKED, population_windows=0.0), "knows no fleet"),
        (replace(ASKED, round=True), "lacks 'round'"),
    ],
)
def test_what_cannot_be_a_question_is_refused(question: RoundQuestion, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        RoundQuestion.read(question.content({}), 2, "float64")


def test_a_question_without_a_round_is_refused() -> None:
    message = ASKED.content({})
    values = {name: value for name, value in message.values.items() if name != "round"}
    with pytest.raises(DataError, match="lacks 'round'"):
        RoundQuestion.read(Content(values, message.arrays), 2, "float64")
