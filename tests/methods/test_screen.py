"""The screen by signals: who is left out, and who is not."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.attack import is_faulty
from fedwatt.methods.screen import Screen
from fedwatt.methods.server import Replies
from fedwatt.models import MLP
from tests.federation.toys import random_fleet


def replies(lengths: list[float], steps: list[int] | None = None, **uploads: Tensor) -> Replies:
    rng = np.random.default_rng(0)
    deltas = torch.tensor(lengths)[:, None]
    windows = torch.ones(len(lengths)).double()
    own = None if steps is None else torch.tensor(steps)
    return Replies(deltas, windows, 9, 9.0, rng, uploads, steps=own)


def left(found: Replies) -> list[float]:
    return Screen().screen(found).deltas.flatten().tolist()


def test_a_reply_that_is_much_longer_is_left_out_and_a_short_one_is_not() -> None:
    assert left(replies([1.0, -1.1, 0.9, 1.0, 30.0, 0.001])) == pytest.approx(
        [1.0, -1.1, 0.9, 1.0, 0.001]
    )


def test_length_is_of_a_step() -> None:
    lengths = [1.0, 1.1, 0.9, 1.0, 30.0]
    assert len(left(replies(lengths, [1, 1, 1, 1, 30]))) == 5
    assert len(left(replies(lengths, [1, 1, 1, 1, 1]))) == 4


def test_who_works_against_the_fleet_three_turns_running_is_left_out() -> None:
    told = torch.tensor([0.0, 2.0, 3.0, 0.0]).double()
    assert left(replies([1.0, 2.0, 3.0, 4.0], opposed=told)) == [1.0, 2.0, 4.0]
    assert left(replies([1.0, 2.0], opposed=torch.tensor([3.0, 4.0]))) == [1.0, 2.0]  # nobody else


def test_broken_vehicles_are_flagged_and_screened() -> None:
    fleet = random_fleet([40, 9, 33, 70, 55, 20, 64])

    def rows(name: str) -> list[dict[str, Any]]:
        training = Training(rounds=2, participation=1.0, batch=16, steps=5)
        federation = Federation(fleet, MLP(4, 8, (6, 5)), training=training, device="cpu")
        return federation.train(name).history.clients

    broken = {row["vehicle"] for row in rows("fedavg+scaled-update") if row["flagged"]}
    names = {client.name for client in fleet.clients}
    assert broken == {name for name in names if is_faulty(name, seed=0, share=0.2)} != set()
    # Without them the second round starts from a model that nobody took over.
    drift, screened = (
        max(
            row["drift"] for row in rows(name) if row["round"] == 2 and row["vehicle"] not in broken
        )
        for name in ("fedavg+scaled-update", "fedavg+scaled-update@screened")
    )
    assert screened < drift / 2


@pytest.mark.parametrize("settings", [{"screen_z": 0.0}, {"screen_turns": 0}])
def test_what_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        get("fedavg@screened", **settings)
