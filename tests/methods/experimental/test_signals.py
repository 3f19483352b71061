"""Signals on losses known by hand, training that they leave alone, and the screen by signals."""

from typing import Any

import numpy as np
import pytest
import torch
from pytest import approx
from torch import Tensor

from examples.faulty_vehicles import is_faulty
from fedwatt.engine import plain, together
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.federation.participation import Call
from fedwatt.methods import get
from fedwatt.methods.experimental.signals import Screen
from fedwatt.methods.server import Replies
from fedwatt.metrics import Stopwatch
from fedwatt.models import MLP
from tests.federation.toys import FULL, line_client, line_federation, random_fleet, toy_states

SCALED = "examples.faulty_vehicles:ScaledUpdate"


def federation(rounds: int = 4) -> Federation:
    training = Training(rounds=rounds, participation=0.75, batch=16)
    return Federation(random_fleet(), MLP(4, 8, (6, 5)), training=training, device="cpu")


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fo-ri-fedavg"])
def test_weights_are_those_without_signals(name: str) -> None:
    watched = federation().train(f"{name}+signals").state.weights
    assert torch.equal(watched, federation().train(name).state.weights)


def test_alignment_and_transfer_on_the_scalar_toy() -> None:
    # Both move toward their own minimum, 1 and -2, and the fleet from 0.5 to -0.39 with the second.
    method = get("fedavg+signals")
    *_, (toy, state) = toy_states(method, FULL[:1])
    calls = [Call(0, 0, 2), Call(0, 1, 3)]
    work = toy.simulated.trained(method, state, calls, Stopwatch())
    first, second = (
        {name: work.columns[name][row] for name in ("alignment", "transfer")}
        for row in sorted(range(2), key=lambda row: work.calls[row].vehicle)
    )
    assert (first["alignment"], second["alignment"]) == (-1.0, 1.0)
    # F_1 = (w - 1)²/2 from 0.5: to 0.595 by itself, to -0.39125 with the fleet: worse, so -1.
    assert first["transfer"] == -1.0
    # F_2 = (w + 2)² from 0.5: 6.25 → (1.28)² by itself, (1.60875)² with the fleet.
    assert second["transfer"] == approx((6.25 - 1.60875**2) / (6.25 - 1.28**2), abs=1e-12)


def test_efficiency_is_the_way_over_the_path() -> None:
    # (w + 2)² at the rate 0.9: w + 2 is 2.5, -2, 1.6 and -1.28, by steps of 4.5, 3.6 and 2.88.
    points = [(1.0, -2.0)]
    car = line_client("car", train=points, validation=points, test=points)
    fed = line_federation(
        [car], training={"rounds": 2, "learning_rate": 0.9, "steps": 3, "schedule": "constant"}
    )
    first, second = fed.train("fedavg+signals").history.clients
    assert np.isnan(first["efficiency"])
    assert second["efficiency"] == approx(3.78 / (4.5 + 3.6 + 2.88), abs=1e-12)


def test_turns_against_the_fleet_are_counted_and_told_where_asked() -> None:
    # The first vehicle of the toy moves to 1 in every round, and the fleet to -2.
    method = get("fedavg+signals", tell_turns=True)
    assert method.upload_names == ["opposed"] and not get("fedavg+signals").upload_names
    counts = []
    for toy, state in toy_states(method, FULL):
        calls = [Call(0, 0, 2), Call(0, 1, 3)]
        work = toy.simulated.trained(method, state, calls, Stopwatch())
        rows = sorted(range(2), key=lambda row: work.calls[row].vehicle)
        counts.append([work.columns["turns_against"][row] for row in rows])
        assert work.uploads["opposed"][rows].tolist() == counts[-1]
    assert counts == [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]


@pytest.mark.parametrize("name", ["fedavg", "fo-fedavg", "moon", "sam"])
def test_paths_are_as_long_on_every_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(precision: str) -> list[float]:
        training = Training(rounds=2, participation=1.0, batch=16, precision=precision)
        fed = Federation(random_fleet(), MLP(4, 8, (6, 5)), training=training, device="cpu")
        rows = fed.train(f"{name}+signals").history.clients
        return [row["efficiency"] for row in rows if row["round"] == 2]

    fast = recorded("float32")
    blocks = recorded("float64")
    monkeypatch.setattr(together.cpu, "train", lambda job, watch: plain.train(job))
    assert blocks == approx(recorded("float64"), abs=1e-9)
    assert fast == approx(blocks, abs=1e-4)
    assert all(0 < value <= 1 + 1e-6 for value in fast) and min(fast) < 0.999


def test_the_noise_scale_is_variance_over_squared_mean() -> None:
    # At w = 0.5 the gradient of (w x - y)² is 2 x (w x - y): 1, 2, 3 and 6 for x = 1 and these y.
    points = [(1.0, 0.5 - g / 2) for g in (1.0, 2.0, 3.0, 6.0)]
    car = line_client("car", train=points, validation=points, test=points)
    fed = line_federation([car], training={"rounds": 1})
    method = get("fedavg+signals", signal_batch=4, signal_parts=4)
    (row,) = fed.train(method).history.clients
    assert row["noise_scale"] == approx(4.6666666667 / 7.8333333333, abs=1e-9)
    assert np.isnan(row["alignment"]) and np.isnan(row["transfer"])


def test_a_vehicle_with_fewer_windows_than_parts_has_no_noise_scale() -> None:
    points = [(1.0, 2.0)]
    car = line_client("car", train=points, validation=points, test=points)
    (row,) = line_federation([car], training={"rounds": 1}).train("fedavg+signals").history.clients
    assert np.isnan(row["noise_scale"])


def test_who_records_the_ratio_already_needs_no_signals() -> None:
    with pytest.raises(SettingError, match="records the transfer ratio already"):
        get("ti-fedavg+signals")


def replies(lengths: list[float], steps: list[int] | None = None, **uploads: Tensor) -> Replies:
    rng = np.random.default_rng(0)
    deltas = torch.tensor(lengths)[:, None]
    windows = torch.ones(len(lengths)).double()
    step_counts = None if steps is None else torch.tensor(steps)
    return Replies(deltas, windows, 9, 9.0, rng, uploads, steps=step_counts)


def left(recorded: Replies) -> list[float]:
    return Screen().screen(recorded).deltas.flatten().tolist()


def test_a_reply_that_is_much_longer_is_left_out_and_a_short_one_is_not() -> None:
    assert left(replies([1.0, -1.1, 0.9, 1.0, 30.0, 0.001])) == pytest.approx(
        [1.0, -1.1, 0.9, 1.0, 0.001]
    )


def test_length_is_of_a_step() -> None:
    lengths = [1.0, 1.1, 0.9, 1.0, 30.0]
    assert len(left(replies(lengths, [1, 1, 1, 1, 30]))) == 5
    assert len(left(replies(lengths, [1, 1, 1, 1, 1]))) == 4


def test_who_works_against_the_fleet_three_turns_running_is_left_out() -> None:
    messages = torch.tensor([0.0, 2.0, 3.0, 0.0]).double()
    assert left(replies([1.0, 2.0, 3.0, 4.0], opposed=messages)) == [1.0, 2.0, 4.0]
    assert left(replies([1.0, 2.0], opposed=torch.tensor([3.0, 4.0]))) == [1.0, 2.0]  # nobody else


def test_broken_vehicles_are_flagged_and_screened() -> None:
    fleet = random_fleet([40, 9, 33, 70, 55, 20, 64])

    def rows(name: str) -> list[dict[str, Any]]:
        training = Training(rounds=2, participation=1.0, batch=16, steps=5)
        federation = Federation(fleet, MLP(4, 8, (6, 5)), training=training, device="cpu")
        return federation.train(name).history.clients

    broken = {row["vehicle"] for row in rows(f"fedavg+{SCALED}") if row["flagged"]}
    names = {client.name for client in fleet.clients}
    assert broken == {name for name in names if is_faulty(name, seed=0, share=0.2)} != set()
    # Without them the second round starts from a model that nobody took over.
    drift, screened = (
        max(
            row["drift"] for row in rows(name) if row["round"] == 2 and row["vehicle"] not in broken
        )
        for name in (f"fedavg+{SCALED}", f"fedavg+{SCALED}@screened")
    )
    assert screened < drift / 2


@pytest.mark.parametrize("settings", [{"screen_z": 0.0}, {"screen_turns": 0}])
def test_what_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        get("fedavg@screened", **settings)
