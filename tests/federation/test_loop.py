"""The loop keeps nothing: a state and a question have one answer, whichever fleet gives it."""

import inspect
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
import torch

import fedwatt.federation
from fedwatt.federation import Asynchronous, Availability, Federation, RoundRecord, Training
from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.records import Evaluation
from fedwatt.federation.work import Work
from fedwatt.methods import get
from fedwatt.metrics import ErrorSums
from fedwatt.models import MLP
from tests.federation.toys import over, random_fleet

CHURN = Availability(p_leave=0.3, p_join=0.5, reply_loss=0.2, speeds=(1.0, 0.4))
ROUNDS = Asynchronous()
BUFFER = Asynchronous(buffer=2, jitter=0.3)


def federation(asynchronous: Asynchronous = ROUNDS, **training: Any) -> Federation:
    return Federation(
        random_fleet((70, 33, 128, 5, 60), held_out=(3,)),
        MLP(4, 8, (6, 5)),
        training=Training(**{"rounds": 6, "participation": 0.7, "batch": 16} | training),
        availability=CHURN,
        asynchronous=asynchronous,
        seeds=(1, 2),
        device="cpu",
    )


def tables(record: RoundRecord) -> str:
    """All rows of a round; as text, in which NaN equals itself."""
    return repr((record.rounds, record.clients))


@pytest.mark.parametrize(
    ("asynchronous", "name"),
    [(ROUNDS, "scaffold"), (ROUNDS, "fo-ri-fedavg"), (BUFFER, "moon"), (BUFFER, "fo-ri-fedavg")],
)
def test_the_same_state_has_the_same_next_one(asynchronous: Asynchronous, name: str) -> None:
    quick = {"directions": 2, "points": 4, "probe_batch": 16} if "ri" in name else {}
    method = get(name, **quick)
    loop = federation(asynchronous)
    state, _ = loop.start(method)
    state, _ = loop.advance(method, state)
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    after, record = loop.advance(method, state)
    loop.advance(method, after)  # leaves no trace
    again, same = loop.advance(method, state)
    assert tables(same) == tables(record)
    for tensor, value in again.tensors().items():
        assert torch.equal(value, after.tensors()[tensor]), tensor
        assert torch.equal(state.tensors()[tensor], before[tensor]), tensor


class Answering:
    """A simulated fleet, with some of its answers replaced."""

    def __init__(self, of: Federation, **answers: Any) -> None:
        self.fleet = of.simulated
        self.answers = answers

    def __getattr__(self, question: str) -> Any:
        return self.answers.get(question) or getattr(self.fleet, question)


def test_what_a_fleet_has_to_remember_comes_back_with_the_next_question() -> None:
    own = federation(evaluate_every=2, rounds=3)
    seen = []
    fleet = own.simulated

    def work(method: Any, state: Any, *more: Any) -> Work:
        seen.append(("work", state.events["count"].item()))
        return replace(
            fleet.work(method, state, *more), events={"count": state.events["count"] + 1}
        )

    def evaluate(weights: Any, events: Any, present: Any) -> ModelEvaluation:
        seen.append(("evaluate", events["count"].item()))
        return ModelEvaluation(own.evaluate(weights), {"count": events["count"] + 10})

    port = Answering(
        own,
        work=work,
        evaluate=evaluate,
        initial_states=lambda *_: ({}, {"count": torch.tensor(0)}),
    )
    state = over(own, port).train("fedavg").state
    # Rounds 2 and 3 are evaluated, and round 0.
    assert seen == [
        ("evaluate", 0), ("work", 10), ("work", 11), ("evaluate", 12), ("work", 22), ("evaluate",
        23)
    ]  # fmt: skip
    assert state.events["count"] == 33


def test_the_best_is_sought_anew_where_models_cannot_be_compared() -> None:
    simulation = federation(rounds=3)
    errors = iter([(1.0, True), (4.0, True), (9.0, False), (16.0, True)])

    def evaluate(weights: Any, events: Any, present: Any) -> ModelEvaluation:
        squared, comparable = next(errors)
        sums = [ErrorSums(windows=1, squared_wh2=squared)] * len(present.members.evaluated)
        return ModelEvaluation([Evaluation(sums, sums)] * len(weights), events, comparable)

    history = over(simulation, Answering(simulation, evaluate=evaluate)).train("fedavg").history
    best = [row["best_round"] for row in history.rounds if row["seed"] == 1]
    assert best == [0, 0, 2, 2]


def test_a_reply_counts_with_the_weight_that_the_fleet_gives_it() -> None:
    trained_federation = Federation(
        random_fleet((40, 40)), MLP(4, 8, (6, 5)), training=Training(participation=1)
    )
    fleet = trained_federation.simulated
    result = []

    def work(*asked: Any) -> Work:
        result.append(replace(fleet.work(*asked), weights=np.array([1.0, 3.0])))
        return result[0]

    loop = over(trained_federation, Answering(trained_federation, work=work))
    method = get("fedavg")
    state, _ = loop.start(method)
    after, _ = loop.advance(method, state)
    first, second = result[0].deltas.double()
    moved = (after.weights - state.weights)[0].double()
    # Float32 weights near 0.5 are 6e-8 apart.
    torch.testing.assert_close(moved, (first + 3 * second) / 4, rtol=0, atol=1e-7)


def test_no_class_overrides_what_another_does() -> None:
    for module in iter_modules(fedwatt.federation.__path__, "fedwatt.federation."):
        for _, kind in inspect.getmembers(import_module(module.name), inspect.isclass):
            ours = [base for base in kind.__mro__[1:] if base.__module__.startswith("fedwatt.")]
            for base in ours:
                shared = {name for name in vars(kind) if not name.startswith("__")} & set(
                    vars(base)
                )
                assert not (kind.__module__ == module.name and shared - {"_abc_impl"}), kind
