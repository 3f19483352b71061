"""Rounds of a federation: records, lost and broken replies, divergence, the best model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.methods import get
from fedwatt.metrics import Stopwatch
from fedwatt.models import MLP, ModuleModel
from fedwatt.windows import Fleet
from tests.federation.toys import line_client, line_federation, random_fleet

QUICK_PROBE = {"directions": 2, "points": 4, "probe_batch": 16}


def federation(fleet: Fleet | None = None, *, availability=None, seeds=(1, 2), **training):
    settings = {"rounds": 4, "participation": 0.5, "batch": 16} | training
    return Federation(
        fleet or random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(**settings),
        availability=availability,
        seeds=seeds,
        device="cpu",
    )


def test_training_lowers_the_error() -> None:
    history = federation(rounds=15, participation=1.0, epochs=5).train("fedavg").history
    first = [row for row in history.rounds if row["round"] == 0]
    last = [row for row in history.rounds if row["round"] == 15]
    for before, after in zip(first, last, strict=True):
        assert after["test_rmse"] < 0.8 * before["test_rmse"]


def test_every_method_sees_the_same_participants() -> None:
    called = []
    for name in ("fedavg", "fo-ri-fedavg"):
        clients = federation().train(name).history.clients
        called.append([(row["seed"], row["round"], row["vehicle"]) for row in clients])
    assert called[0] == called[1]
    assert len(called[0]) == 2 * 4 * 2  # seeds, rounds, ⌈0.5·4⌉


def test_a_round_is_recorded_as_it_was() -> None:
    fed = federation(random_fleet((40,)), participation=1.0, seeds=(5,))
    start, _ = fed.start(get("fedavg"))
    after, record = fed.advance(get("fedavg"), start)
    (row,) = record.rounds
    (client,) = record.clients
    moved = (after.weights[0].double() - start.weights[0].double()).norm().item()
    assert client["drift"] == pytest.approx(moved, rel=1e-5)
    assert row["drift_mean"] == client["drift"]
    assert row["drift_cv"] == 0.0
    assert (client["windows"], client["steps"], client["vehicle"]) == (40, 3, "car-000")
    assert (row["available"], row["participants"], row["replies"], row["steps"]) == (1, 1, 1, 3)
    assert row["learning_rate"] == 0.05
    assert np.isnan(client["roughness"])
    assert not client["probed"]
    parts = {name: s for name, s in record.seconds.items() if name != "total"}
    assert record.seconds["total"] == pytest.approx(sum(parts.values()))


def test_the_roughness_of_a_vehicle_is_recorded_and_remembered() -> None:
    method = get("fo-ri-fedavg", probe_every=2, radius=0.5, beta_kappa=0.5, **QUICK_PROBE)
    clients = federation(participation=1.0, rounds=3).train(method).history.clients
    probed = [row["probed"] for row in clients if row["seed"] == 1 and row["vehicle"] == "car-001"]
    assert probed == [True, False, True]
    first, second, _ = [
        row["roughness"] for row in clients if row["seed"] == 1 and row["vehicle"] == "car-001"
    ]
    assert first == second
    assert first > 0
    for row in clients:
        assert row["pull"] == pytest.approx(0.1 * row["roughness"] / (row["roughness"] + 0.1))
        assert 0 < row["kappa"] <= 1


def test_held_out_vehicles_are_judged_but_never_train() -> None:
    history = federation(random_fleet(held_out=(1,)), participation=1.0).train("fedavg").history
    assert {row["vehicle"] for row in history.clients} == {"car-000", "car-002", "car-003"}
    assert all(row["held_out_rmse"] > 0 for row in history.rounds)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddyn"])
def test_a_held_out_vehicle_changes_nothing_about_training(method: str) -> None:
    # n and K are those of the vehicles that train: SCAFFOLD and FedDyn divide by them.
    still = {"validation": [(0.0, 0.0)], "test": [(0.0, 0.0)]}
    members = [
        line_client("a", train=[(1, 2)], **still),
        line_client("b", train=[(2, -1)], **still),
    ]
    other = line_client("c", held_out=True, train=[(1, 5)] * 9, **still)
    alone, beside = (
        line_federation(clients, training={"rounds": 3}).train(method).state.weights
        for clients in (members, [*members, other])
    )
    assert torch.equal(alone, beside)


def test_evaluation_keeps_its_cadence_and_never_misses_the_end() -> None:
    history = federation(rounds=5, evaluate_every=2, seeds=(1,)).train("fedavg").history
    assert [r["round"] for r in history.rounds if r["evaluated"]] == [0, 2, 4, 5]
    assert np.isnan([r["test_rmse"] for r in history.rounds if not r["evaluated"]]).all()


def test_the_best_model_is_the_one_validation_chose() -> None:
    fed = federation(
        rounds=8, learning_rate=0.5, schedule="constant", seeds=(1,), participation=0.25
    )
    trained = fed.train("fedavg")
    rows = trained.history.rounds
    best = min(rows, key=lambda row: row["validation_rmse"])
    assert rows[-1]["best_round"] == best["round"] < 8  # such a rate does not end at its best
    assert rows[-1]["best_test_rmse"] == best["test_rmse"]
    (again,) = fed.evaluate(trained.state.best_weights)
    assert sum(again.test, start=type(again.test[0])()).rmse == pytest.approx(best["test_rmse"])


def test_lost_replies_leave_no_trace() -> None:
    method = get("ri-fedavg", **QUICK_PROBE)
    fed = federation(availability=Availability(reply_loss=1.0))
    start, _ = fed.start(method)
    after, record = fed.advance(method, start)
    assert torch.equal(after.weights, start.weights)
    assert (after.client_state["probed_in"] == -1).all()
    assert not after.diverged.any()
    assert [(r["participants"], r["replies"], r["lost"]) for r in record.rounds] == [(2, 0, 2)] * 2


def test_some_lost_replies_are_survived() -> None:
    fed = federation(availability=Availability(reply_loss=0.5), participation=1.0, rounds=6)
    rows = [row for row in fed.train("fedavg").history.rounds if row["round"]]
    assert all(row["replies"] + row["lost"] == 4 for row in rows)
    assert 0 < sum(row["lost"] for row in rows) < 48


def test_nobody_there_is_a_round_without_change() -> None:
    fed = federation(availability=Availability(p_leave=1.0))
    state, _ = fed.start(get("fedavg"))
    state, _ = fed.advance(get("fedavg"), state)
    gone, record = fed.advance(get("fedavg"), state)
    assert torch.equal(gone.weights, state.weights)
    assert [row["participants"] for row in record.rounds] == [0, 0]


def broken_vehicle(fleet: Fleet, k: int) -> Fleet:
    client = fleet.clients[k]
    labels = dict(client.labels) | {"train": np.full_like(client.labels["train"], np.nan)}
    clients = list(fleet.clients)
    clients[k] = replace(client, labels=labels)
    return Fleet(tuple(clients), fleet.settings, fleet.source)


def test_a_non_finite_reply_is_rejected_and_the_others_count_in_full() -> None:
    fleet = random_fleet()
    fed = federation(broken_vehicle(fleet, 2), participation=1.0, precision="float64")
    trained = fed.train("fedavg")
    rows = [row for row in trained.history.rounds if row["round"]]
    assert all((row["replies"], row["rejected"]) == (3, 1) for row in rows)
    without = Fleet((*fleet.clients[:2], fleet.clients[3]), fleet.settings, fleet.source)
    expected = federation(without, participation=1.0, precision="float64").train("fedavg")
    torch.testing.assert_close(trained.state.weights, expected.state.weights, rtol=0, atol=1e-12)


def test_a_vehicle_forgets_a_round_whose_reply_was_not_finite() -> None:
    fed = federation(broken_vehicle(random_fleet(), 2), participation=1.0, rounds=3, seeds=(1,))
    clients = fed.train(get("ri-fedavg", probe_every=2, **QUICK_PROBE)).history.clients

    def probed(vehicle: str) -> list[bool]:
        return [row["probed"] for row in clients if row["vehicle"] == vehicle]

    # Whoever remembers the probe of round 1 probes again in round 3, the other one every time.
    assert probed("car-001") == [True, False, True]
    assert probed("car-002") == [True, True, True]


def test_a_method_that_explodes_is_reported_as_diverged() -> None:
    trained = federation(learning_rate=1e6, rounds=6).train("fedavg")
    ended = dict(zip((1, 2), trained.state.diverged.tolist(), strict=True))
    assert all(0 < t < 6 for t in ended.values())
    for row in trained.history.rounds:  # the last row of a seed says so, and no row follows it
        assert row["diverged"] == (row["round"] == ended[row["seed"]])
    assert trained.state.weights.isfinite().all()  # the last finite model
    assert torch.equal(trained.state.final_weights, trained.state.best_weights)


def test_one_seed_diverges_and_the_others_go_on() -> None:
    fed = federation()
    state, _ = fed.start(get("fedavg"))
    state.weights[0] = torch.nan
    while not fed.finished(state):
        state, record = fed.advance(get("fedavg"), state)
    assert state.diverged.tolist() == [1, 0]
    assert [row["seed"] for row in record.rounds] == [2]
    alone = federation(seeds=(2,)).train("fedavg").state.weights
    torch.testing.assert_close(state.weights[1], alone[0], rtol=0, atol=1e-5)


def test_a_state_survives_being_taken_apart() -> None:
    fed = federation()
    method = get("fo-ri-fedavg", **QUICK_PROBE)
    state, _ = fed.advance(method, fed.start(method)[0])
    copy = State.from_tensors(state.round, state.tensors())
    for name, tensor in state.tensors().items():
        assert torch.equal(copy.tensors()[name], tensor)
    on, _ = fed.advance(method, state)
    again, _ = fed.advance(method, copy)
    assert torch.equal(on.weights, again.weights)


def test_errors_by_vehicle_and_stratum_add_up() -> None:
    fed = federation(seeds=(1,))
    state = fed.train("fedavg").state
    rows = fed.vehicle_rows(state.weights)
    assert {row["stratum"] for row in rows} == {"all", "speed: slow", "speed: fast"}
    for vehicle in fed.fleet.names:
        by_stratum = {row["stratum"]: row for row in rows if row["vehicle"] == vehicle}
        assert by_stratum["all"]["windows"] == 24
        halves = by_stratum["speed: slow"]["rmse"] ** 2 + by_stratum["speed: fast"]["rmse"] ** 2
        assert by_stratum["all"]["rmse"] ** 2 == pytest.approx(halves / 2)


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: federation(seeds=()), SettingError, "one or more different numbers"),
        (lambda: federation(seeds=(1, 1)), SettingError, "one or more different numbers"),
        (lambda: federation(seeds=1), SettingError, r"such as \(1, 2, 3\), got 1"),
        (lambda: Federation("fleets/ved"), SettingError, "fleet must be a Fleet, got str: load_fl"),
        (
            lambda: Federation(random_fleet(), training={"rounds": 1}),
            SettingError,
            r"training must be a Training, got dict: write Training\(\)",
        ),
        (
            lambda: federation().train("fedavg").history.last("rmse"),
            SettingError,
            "Unknown column of the rounds 'rmse'",
        ),
        (lambda: federation(random_fleet((9,), held_out=(0,))), SettingError, "held out"),
        (lambda: federation(random_fleet(())).pool, SettingError, "held out|no vehicles"),
        (lambda: federation().train("fedporx"), SettingError, "Did you mean 'fedprox'"),
        (lambda: get("fedavg", mu=1.0), SettingError, "'fedavg' has none"),
        (lambda: get("fo-fedavg", alhpa=0.7), SettingError, "Did you mean 'alpha'"),
        (lambda: get("fo-fedavg", alpha="high"), SettingError, "fo-fedavg.alpha must be a number"),
        (
            lambda: Federation(random_fleet(), device="tpu"),
            SettingError,
            "device must be 'auto', 'cpu' or 'cuda'",
        ),
    ],
)
def test_impossible_federations_are_refused(build, kind: type[DataError], message: str) -> None:
    with pytest.raises(kind, match=message):
        build()


def test_every_purpose_draws_its_own_probe_batch() -> None:
    fed = Federation(random_fleet(), MLP(4, 8, (6, 5)), device="cpu")
    method = get("fedavg")
    state, _ = fed.start(method)
    fleet = fed.simulated
    calls = fleet.calls(state, fleet.present(state))
    start = fleet.begin(method, state, calls, Stopwatch()).start
    purposes = ("probe batch", "control batch", "importance batch")
    first, two, three = (start.probe_batch(0, 5, purpose).windows for purpose in purposes)
    assert torch.equal(first, start.probe_batch(0, 5, "probe batch").windows)
    assert not torch.equal(first, two)
    assert not torch.equal(first, three)
    assert not torch.equal(two, three)


def test_a_fixed_batch_is_the_same_in_every_round() -> None:
    fed = Federation(random_fleet(), MLP(4, 8, (6, 5)), device="cpu")
    fleet = fed.simulated
    method = get("fedavg")
    state, _ = fed.start(method)
    calls = fleet.calls(state, fleet.present(state))
    first, two = (
        fleet.begin(method, replace(state, round=n), calls, Stopwatch()).start for n in (3, 4)
    )
    fixed = first.fixed_batch(0, 5, "probe batch").windows
    assert torch.equal(fixed, two.fixed_batch(0, 5, "probe batch").windows)
    drawn = first.probe_batch(0, 5, "probe batch").windows
    assert not torch.equal(drawn, two.probe_batch(0, 5, "probe batch").windows)


@pytest.mark.parametrize(("device", "sync"), [("cpu", None), ("cuda", torch.cuda.synchronize)])
def test_a_gpu_is_waited_for_before_its_time_is_read(device: str, sync) -> None:
    fed = Federation(random_fleet(), device="cpu")
    fed.device = torch.device(device)
    assert fed.stopwatch().sync is sync


def test_a_fleet_says_how_large_it_is_and_not_all_its_numbers() -> None:
    assert repr(random_fleet((40, 9))) == "Fleet('toy', 2 vehicles, 49 training windows)"


def test_a_network_of_torch_trains_as_it_is() -> None:
    fleet = random_fleet((40, 9))
    inputs = fleet.window * len(fleet.features)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, 1))
    training = Training(rounds=1, precision="float64")
    weights = Federation(fleet, network, training=training).train("fedavg").state.weights
    wrapped = Federation(fleet, ModuleModel(network), training=training).train("fedavg")
    assert torch.equal(weights, wrapped.state.weights)


@pytest.mark.parametrize(
    "training",
    [
        Training(rounds=6, participation=0.5, batch=8, patience=1, learning_rate=0.3),
        Training(rounds=4, participation=0.5, batch=8, learning_rate=1e4),
        Training(rounds=4, participation=0.2, batch=8, sampling="poisson"),
    ],
    ids=["stops early", "diverges", "perhaps nobody"],
)
@pytest.mark.parametrize("method", ["fedavg", "fo-ri-fedavg", "ifca"])
def test_a_round_worked_out_ahead_is_the_one_that_comes(method: str, training: Training) -> None:
    churn = Availability(initially=0.7, p_leave=0.3, p_join=0.3, speeds=(1.0, 0.5))

    def made() -> Federation:
        fleet = random_fleet()
        seeds = (1, 2, 3)
        return Federation(fleet, training=training, availability=churn, seeds=seeds, device="cpu")

    first = made()
    rule = get(method)
    state, _ = first.start(rule)
    alone = state
    used = 0
    while not first.finished(state):
        used += first.ahead is not None
        state, record = first.advance(rule, state)
        alone, expected = made().advance(rule, alone)  # has looked ahead of nothing
        assert record.clients == expected.clients
        assert record.rounds == expected.rounds
        for name, values in state.tensors().items():
            assert torch.equal(values, alone.tensors()[name]), name
    assert used or state.round == 1
    assert first.ahead is None or state.round < training.rounds
