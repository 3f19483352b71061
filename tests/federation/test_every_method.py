"""One suite for the whole catalogue: a new method is held to the same terms by being in it."""

from math import isfinite

import pytest
import torch

from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.federation.participation import Call
from fedwatt.federation.work import Work
from fedwatt.methods import METHODS, Method, get
from fedwatt.metrics import Stopwatch
from fedwatt.models import MLP
from tests.federation.toys import all_finite, random_fleet

SLOW = Availability(speeds=(1.0, 0.5))
SIZES = (70, 33, 128, 5)


def federation(availability: Availability = SLOW, **training) -> Federation:
    settings = {"rounds": 4, "participation": 0.75, "batch": 16} | training
    return Federation(
        random_fleet(SIZES),
        MLP(4, 8, (6, 5)),
        training=Training(**settings),
        availability=availability,
        seeds=(1, 2),
        device="cpu",
    )


every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_learns(name: str) -> None:
    rows = federation(participation=1.0, rounds=10, epochs=3).train(name).history.rounds
    for seed in (1, 2):
        first, *_, last = [row for row in rows if row["seed"] == seed]
        assert isfinite(last["test_rmse"])
        # A shared body with the head that nobody trained is no model to drive with.
        assert last["personal_rmse"] < 0.97 * first["test_rmse"]


class Watched(Method):
    """A method that keeps the replies it is given."""

    def update(self, state, weights, replies):
        self.__dict__["seen"] = replies
        return super().update(state, weights, replies)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_method
def test_vehicles_hand_up_what_the_rules_declare(name: str, precision: str) -> None:
    method_here = get(name)
    fed = federation(precision=precision, participation=1.0)
    method = Watched(method_here.name, method_here.local, method_here.server)
    fed.advance(method, fed.start(method)[0])
    uploads = method.__dict__["seen"].uploads
    declared = method.uploads(method.adapted(fed.model))
    assert list(uploads) == list(declared) == method.upload_names
    for table, rows in uploads.items():
        assert rows.shape == (len(SIZES), *declared[table].shape)
        # Numbers of float32 have the precision of training.
        kind = declared[table].dtype
        assert rows.dtype == (getattr(torch, precision) if kind == torch.float32 else kind)


@pytest.mark.parametrize("name", [*METHODS, "fedavg+signals@screened"])
def test_resumes_bit_for_bit(name: str) -> None:
    method = get(name)
    fed = federation()
    state, _ = fed.start(method)
    for _ in range(2):
        state, _ = fed.advance(method, state)
    copy = State.from_tensors(state.round, {n: t.clone() for n, t in state.tensors().items()})
    # Another process knows the settings and the stored tensors, and nothing else.
    again = federation()
    for _ in range(2):
        state, _ = fed.advance(method, state)
        copy, _ = again.advance(get(name), copy)
    for tensor, value in state.tensors().items():
        assert torch.equal(copy.tensors()[tensor], value), tensor


@every_method
def test_a_vehicle_whose_reply_was_lost_remembers_nothing_of_it(name: str) -> None:
    method = get(name)
    fed = federation(Availability(reply_loss=0.5, speeds=SLOW.speeds), participation=1.0)
    state, _ = fed.start(method)
    lost = 0
    for _ in range(4):
        after, record = fed.advance(method, state)
        for row in record.clients:
            if not row["replied"]:
                lost += 1
                where = fed.seeds.index(row["seed"]), fed.fleet.names.index(row["vehicle"])
                for table, values in after.client_state.items():
                    assert torch.equal(values[where], state.client_state[table][where])
        state = after
    assert lost > 5
    assert all_finite(state)


@every_method
def test_a_round_without_replies_changes_nothing(name: str) -> None:
    method = get(name)
    fed = federation()
    state, _ = fed.advance(method, fed.start(method)[0])
    silent = federation(Availability(reply_loss=1.0, speeds=SLOW.speeds))
    after, _ = silent.advance(method, state)
    assert after.round == state.round + 1
    for group in ("weights", "server.", "client_state."):
        for tensor, value in state.tensors().items():
            if tensor.startswith(group):
                assert torch.equal(after.tensors()[tensor], value), tensor


@every_method
def test_a_vehicle_alone_does_what_it_does_in_a_stack(name: str) -> None:
    method = get(name)
    fed = federation(precision="float64", participation=1.0)
    state, _ = fed.start(method)
    for _ in range(2):
        state, _ = fed.advance(method, state)

    def work(calls: list[Call]) -> Work:
        return fed.simulated.trained(method, state, calls, Stopwatch())

    calls = [Call(run, k, -(-size // 16)) for run in (0, 1) for k, size in enumerate(SIZES)]
    together = work(calls)
    for row, call in enumerate(together.calls):
        alone = work([call])
        pairs = [(alone.deltas[0], together.deltas[row])]
        for table in ("client_state", "uploads"):
            mine = getattr(alone, table)
            all_of_them = getattr(together, table)
            pairs += [(mine[key][0], all_of_them[key][row]) for key in all_of_them]
        for first, other in pairs:
            # Sums of another order in batched products: a few bits of float64.
            torch.testing.assert_close(first, other, rtol=0, atol=1e-10)
