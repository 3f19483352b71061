"""FedBuff: the event queue, staleness, and the rounds it becomes when nobody is late."""

from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.federation import Asynchronous, Availability, Federation, State, Training
from fedwatt.federation.buffered import Flight, packed, unpacked
from fedwatt.federation.participation import device_speed, lost_replies
from fedwatt.federation.simulated import SimulatedBackend
from fedwatt.federation.work import Work
from fedwatt.methods import get
from fedwatt.models import MLP
from tests.federation.toys import Line, over, random_fleet, scalar_toy

SIZES = (70, 33, 128, 5, 60, 20)
TWO_SPEEDS = Availability(speeds=(1.0, 0.4))


def buffered(
    asynchronous: Asynchronous, *, availability=None, seeds=(1, 2), sizes=SIZES, **training
) -> Federation:
    settings = {"rounds": 8, "participation": 0.7, "batch": 16} | training
    return Federation(
        random_fleet(sizes),
        MLP(4, 8, (6, 5)),
        asynchronous=asynchronous,
        training=Training(**settings),
        availability=availability,
        seeds=seeds,
        device="cpu",
    )


def toy_path(method: str = "fedavg", *, rounds: int = 3, settings=None, **asynchronous):
    """w_1, w_2, ... of the scalar toy with one step a reply; car-1 needs 2.5 times as long."""
    seed = next(
        s
        for s in range(100)
        if [device_speed(s, car, TWO_SPEEDS) for car in ("car-0", "car-1")] == [1.0, 0.4]
    )
    training = Training(
        rounds=rounds, steps=1, batch=3, learning_rate=0.1, schedule="constant", precision="float64"
    )
    federation = Federation(
        scalar_toy(),
        Line(),
        asynchronous=Asynchronous(**{"buffer": 1, "concurrency": 2, "jitter": 0.0} | asynchronous),
        training=training,
        availability=TWO_SPEEDS,
        seeds=(seed,),
        device="cpu",
    )
    path = []
    trained = federation.train(
        get(method, **settings or {}), on_round=lambda s, _: path.append(s.weights.item())
    )
    return path, trained.history


def test_three_models_by_hand() -> None:
    # Time 1: car-0 replies to w_0 with -0.1 (0.5 - 1). Time 2: to w_1 with -0.1 (0.55 - 1).
    # Time 2.5: car-1 replies to w_0 with -0.1 · 2 (0.5 + 2) = -0.5, two models late.
    path, history = toy_path()
    assert path == pytest.approx([0.55, 0.595, 0.595 - 0.5 / 3**0.5], abs=1e-12)
    assert [row["clock"] for row in history.rounds[1:]] == [1.0, 2.0, 2.5]
    assert [row["staleness"] for row in history.clients] == [0.0, 0.0, 2.0]
    assert [row["vehicle"] for row in history.clients] == ["car-0", "car-0", "car-1"]


def test_age_need_not_matter() -> None:
    path, _ = toy_path(staleness_exponent=0.0)
    assert path[-1] == pytest.approx(0.595 - 0.5, abs=1e-12)


def test_replies_that_are_too_old_are_dropped() -> None:
    # Without car-1's reply of age 2 the third model waits for car-0 at time 3.
    path, history = toy_path(max_staleness=1)
    assert path[-1] == pytest.approx(0.595 - 0.1 * (0.595 - 1), abs=1e-12)
    last = history.rounds[-1]
    assert (last["clock"], last["participants"], last["replies"], last["lost"]) == (3.0, 2, 1, 1)


def test_windows_count_relative_to_their_mean() -> None:
    # The toy's vehicles have 1 and 3 windows, so they count 1/2 and 3/2.
    path, _ = toy_path(weighting="windows")
    first = 0.5 + 0.05 / 2
    second = first + 0.1 * (1 - first) / 2
    assert path == pytest.approx([first, second, second - 0.75 / 3**0.5], abs=1e-12)


def test_the_server_rule_takes_the_step() -> None:
    path, _ = toy_path("fedavg@sgd", settings={"server_learning_rate": 0.5})
    assert path[0] == pytest.approx(0.5 + 0.5 * 0.05, abs=1e-12)


def test_a_buffer_is_divided_by_its_size() -> None:
    # Two replies make a model: car-0's at time 1, and at time 2.5 car-1's. Car-0 is in the buffer
    # already and waits; then both start from w_1, and so on.
    path, history = toy_path(buffer=2, rounds=2)
    first = 0.5 + (0.05 - 0.5) / 2
    second = first + (-0.1 * (first - 1) - 0.2 * (first + 2)) / 2
    assert path == pytest.approx([first, second], abs=1e-12)
    assert [row["clock"] for row in history.rounds[1:]] == [2.5, 5.0]


@dataclass(frozen=True)
class Uniform:
    """Synchronous rounds in which every reply counts the same."""

    fleet: SimulatedBackend

    def __getattr__(self, question: str) -> Any:
        return getattr(self.fleet, question)

    def work(self, *asked: Any) -> Work:
        work = self.fleet.work(*asked)
        return replace(work, weights=np.ones_like(work.weights))


@pytest.mark.parametrize("participation", [0.5, 1.0])
@pytest.mark.parametrize("method", ["fedavg", "fednova", "moon", "fedadam", "fedavg@median"])
def test_without_stragglers_it_is_uniform_averaging(method: str, participation: float) -> None:
    # Equal work and speed: all finish at once, nobody is late, and Mc = Kb = |S|.
    terms = {"rounds": 4, "participation": participation, "steps": 3}
    count = round(6 * participation)
    here = buffered(Asynchronous(buffer=count, jitter=0.0), **terms).train(method)
    uniform = Federation(
        random_fleet(SIZES),
        MLP(4, 8, (6, 5)),
        training=Training(batch=16, **terms),
        seeds=(1, 2),
        device="cpu",
    )
    rounds = over(uniform, Uniform(uniform.simulated)).train(method)
    assert torch.equal(here.state.weights, rounds.state.weights)
    assert all(row["staleness"] == 0 for row in here.history.clients)
    assert here.history.last("clock") == {1: 12.0, 2: 12.0}  # four rounds of three steps


def test_every_vehicle_is_in_a_buffer_once_and_nobody_works_twice() -> None:
    federation = buffered(Asynchronous(buffer=3, jitter=0.5), availability=TWO_SPEEDS)
    method = get("fedavg")
    state, _ = federation.start(method)
    while not federation.finished(state):
        state, record = federation.advance(method, state)
        for run, seed in enumerate(federation.seeds):
            called_names = [row["vehicle"] for row in record.clients if row["seed"] == seed]
            assert len(called_names) == len(set(called_names)) == 3
            flying = [flight.vehicle for flight in unpacked(state.events, run)]
            assert len(flying) == len(set(flying)) <= federation.backend.concurrency == 5
        clock = state.events["clock"]
        assert (state.events["due"] >= clock[:, None]).all()
        oldest = min(f.version for run in (0, 1) for f in unpacked(state.events, run))
        assert len(state.events["models"]) == state.round - oldest


def test_fast_vehicles_reply_more_often() -> None:
    availability = Availability(speeds=(1.0, 0.1))
    federation = buffered(
        Asynchronous(buffer=2), availability=availability, seeds=(3,), rounds=40, steps=4
    )
    clients = federation.train("fedavg").history.clients
    counts = {1.0: [], 0.1: []}
    for client in federation.fleet.clients:
        speed = device_speed(3, client.name, availability)
        counts[speed].append(sum(row["vehicle"] == client.name for row in clients))
    assert min(counts[1.0]) > max(counts[0.1])
    assert max(row["staleness"] for row in clients) > 3


def test_a_vehicle_remembers_by_the_model_it_downloaded() -> None:
    method = get("ri-fedavg", directions=2, points=4, probe_batch=16, probe_every=1)
    federation = buffered(Asynchronous(buffer=2), availability=TWO_SPEEDS, rounds=6)
    history = (trained := federation.train(method)).history
    assert any(row["staleness"] > 0 for row in history.clients)
    for run, seed in enumerate(federation.seeds):
        last = {r["vehicle"]: r for r in history.clients if r["seed"] == seed}
        for vehicle, client in enumerate(federation.fleet.clients):
            probed = int(trained.state.client_state["probed_in"][run, vehicle])
            row = last.get(client.name)
            assert probed == (row["round"] - 1 - row["staleness"] if row else -1)


def test_a_run_goes_on_from_its_state() -> None:
    method = get("fo-ri-fedavg", directions=2, points=4, probe_batch=16)
    terms = {"asynchronous": Asynchronous(buffer=2, jitter=0.3), "availability": TWO_SPEEDS}
    outcome = buffered(**terms).train(method)
    state, _ = buffered(**terms).start(method)
    while state.round < 8:  # taken apart and put together after every model, by another federation
        state, record = buffered(**terms).advance(method, state)
        state = State.from_tensors(state.round, state.tensors())
    for name, tensor in outcome.state.tensors().items():
        assert torch.equal(tensor, state.tensors()[name]), name
    for column in ("test_rmse", "clock", "staleness_mean", "drift_mean"):
        assert [row[column] for row in record.rounds] == [
            row[column] for row in outcome.history.rounds[-2:]
        ]


def test_seeds_in_one_stack_are_seeds_alone() -> None:
    terms = {"asynchronous": Asynchronous(buffer=2), "availability": TWO_SPEEDS}
    together = buffered(**terms, precision="float64").train("fedavg").state
    for run, seed in enumerate((1, 2)):
        alone = buffered(**terms, seeds=(seed,), precision="float64").train("fedavg").state
        # Stacks of another size: batched products round differently.
        torch.testing.assert_close(together.weights[run], alone.weights[0], rtol=0, atol=1e-12)
        assert torch.equal(together.events["due"][run], alone.events["due"][0])


def test_when_nobody_replies_the_model_stays() -> None:
    federation = buffered(Asynchronous(buffer=3), availability=Availability(reply_loss=1.0))
    state, _ = federation.start(get("fedavg"))
    after, record = federation.advance(get("fedavg"), state)
    assert torch.equal(after.weights, state.weights)
    assert not after.diverged.any()
    assert [(r["participants"], r["replies"], r["lost"]) for r in record.rounds] == [(6, 0, 6)] * 2


def test_churn_and_losses_end_in_smaller_buffers_not_in_a_halt() -> None:
    availability = Availability(reply_loss=0.4, p_leave=0.4, p_join=0.4)
    rows = (
        buffered(Asynchronous(buffer=5), availability=availability).train("fedavg").history.rounds
    )
    replies = [row["replies"] for row in rows if row["round"]]
    assert len(replies) == 2 * 8
    assert max(replies) <= 5
    assert min(replies) < 5


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("scaffold", "buffered control variates would be stale"),
        ("feddyn", "one common model"),
        ("fedel", "rounds that all start alike"),
        (
            "fedavg@krum",
            "needs at least 5 replies, and a full buffer brings 3",
        ),
    ],
)
def test_what_a_buffer_cannot_carry(method: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        buffered(Asynchronous(buffer=3)).train(method)


def test_terms_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match=r"buffer must be in 1\.\.6"):
        buffered(Asynchronous(buffer=7))
    with pytest.raises(SettingError, match="has no deadlines"):
        buffered(Asynchronous(buffer=3), availability=replace(TWO_SPEEDS, deadline=5.0))
    with pytest.raises(SettingError, match="weighting must be"):
        Asynchronous(weighting="n_k")


def test_flights_survive_being_packed() -> None:
    flights = [[Flight(2.5, 1, 0), Flight(2.0, 3, 1)], []]
    events = packed(flights, 3)
    assert unpacked(events, 0) == [Flight(2.0, 3, 1), Flight(2.5, 1, 0)]
    assert unpacked(events, 1) == []


@pytest.mark.parametrize("why", ["lost", "not finite"])
@pytest.mark.parametrize("method", ["fedavg", "fednova", "fedavg@sgd", "fedavg@median"])
def test_an_empty_place_is_divided_by_all_the_same(method: str, why: str) -> None:
    # Only car-0's reply -0.1 (0.5 - 1) counts; the buffer has two places.
    fleet = scalar_toy()
    availability = Availability()
    seed = 0
    if why == "lost":
        availability = Availability(reply_loss=0.5)
        seed = next(
            s for s in range(100) if lost_replies(s, 0, 2, availability).tolist() == [False, True]
        )
    else:
        labels = fleet.clients[1].labels
        broken = replace(fleet.clients[1], labels=labels | {"train": labels["train"] * nan})
        fleet = replace(fleet, clients=(fleet.clients[0], broken))
    federation = Federation(
        fleet,
        Line(),
        asynchronous=Asynchronous(buffer=2, concurrency=2, jitter=0.0),
        training=Training(rounds=1, steps=1, batch=3, learning_rate=0.1, precision="float64"),
        availability=availability,
        seeds=(seed,),
        device="cpu",
    )
    state = federation.train(method).state
    assert state.weights.item() == pytest.approx(0.5 + 0.05 / 2, abs=1e-12)
