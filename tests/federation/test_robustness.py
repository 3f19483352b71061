"""Defences inside a federation: identities, rounds with too few replies, and faulty vehicles."""

import pytest
import torch

from examples.faulty_vehicles import is_faulty
from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import Method, get
from fedwatt.models import MLP
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet
from tests.federation.toys import random_fleet

SIZES = (70, 33, 128, 5, 60, 20)
SIGN_FLIP = "examples.faulty_vehicles:SignFlip"


def federation(*, availability=None, **training) -> Federation:
    settings = {"rounds": 4, "participation": 1.0, "batch": 16} | training
    return Federation(
        random_fleet(SIZES),
        MLP(4, 8, (6, 5)),
        training=Training(**settings),
        availability=availability,
        seeds=(1, 2),
        device="cpu",
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg@multikrum", {"byzantine": 0, "keep": 6}),
        ("fedavg@geometric", {"iterations": 0}),
        ("fedavg@bounded", {"bound": float("inf")}),
    ],
)
def test_defences_that_do_nothing_are_fedavg(name: str, settings: dict) -> None:
    here = federation().train(get(name, **settings)).state.weights
    assert torch.equal(here, federation().train("fedavg").state.weights)
    if name != "fedavg@bounded":  # its default bound is wider than these small drifts
        assert not torch.equal(federation().train(name).state.weights, here)


def test_one_participant_is_its_own_median() -> None:
    alone = {"participation": 1 / 6}
    here = federation(**alone).train("fedavg@median").state.weights
    assert torch.equal(here, federation(**alone).train("fedavg").state.weights)


def test_a_round_with_too_few_replies_makes_no_model() -> None:
    # Krum needs five of the six vehicles; with three of ten replies lost, many rounds have fewer.
    fed = federation(availability=Availability(reply_loss=0.3), rounds=12)
    method = get("ri-fedavg@krum", directions=2, points=4, probe_batch=16)
    state, _ = fed.start(method)
    seen = set()
    while not fed.finished(state):
        before = state
        state, record = fed.advance(method, state)
        for run, row in enumerate(record.rounds):
            arrived = 6 - row["lost"]
            seen.add(arrived >= 5)
            assert torch.equal(before.weights[run], state.weights[run]) == (arrived < 5)
            expected = (arrived, 0) if arrived >= 5 else (0, arrived)
            assert (row["replies"], row["rejected"]) == expected
            assert not row["diverged"]
            if arrived < 5:  # and vehicles whose reply did not count forget the round
                probed = (
                    before.client_state["probed_in"][run],
                    state.client_state["probed_in"][run],
                )
                assert torch.equal(*probed)
    assert seen == {True, False}


def test_a_federation_that_never_has_enough_replies_is_refused_at_once() -> None:
    with pytest.raises(
        SettingError, match=r"at least 5 replies, and a round of 6 vehicles .* 0.5 brings 3"
    ):
        federation(participation=0.5).start(get("fedavg@krum"))
    # Called one by one, all six may happen to take part.
    federation(participation=0.5, sampling="poisson").start(get("fedavg@krum"))


# ------------------------------------------------------------------ faulty vehicles, end to end


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """Twenty synthetic vehicles with few and short windows."""
    settings = DataSettings(stride=20, window=30, evaluation_stride=20)
    return synthetic_fleet(vehicles=20, trips=12, settings=settings)


@pytest.fixture(scope="module")
def four_faulty(fleet: Fleet) -> dict[str, int]:
    """The first draw that makes four of the twenty, 20 %, faulty."""
    for seed in range(100):
        faulty = [is_faulty(client.name, seed=seed, share=0.2) for client in fleet.clients]
        if sum(faulty) == 4:
            return {"fault_seed": seed}
    raise AssertionError("no draw makes exactly four of twenty vehicles faulty")


def rmse_wh(fleet: Fleet, method: Method) -> float:
    training = Training(rounds=20, participation=1.0, batch=32, evaluate_every=20)
    model = MLP(fleet.window, len(fleet.features), (16, 8))
    trained = Federation(fleet, model, training=training, device="cpu").train(method)
    return trained.history.rounds[-1]["test_rmse"]


@pytest.fixture(scope="module")
def clean_wh(fleet: Fleet) -> float:
    return rmse_wh(fleet, get("fedavg"))


def test_averaging_breaks_under_sign_flips(fleet, clean_wh, four_faulty) -> None:
    assert rmse_wh(fleet, get(f"fedavg+{SIGN_FLIP}", **four_faulty)) > 1.5 * clean_wh


@pytest.mark.parametrize(
    ("defence", "settings"),
    [
        ("krum", {"byzantine": 4}),
        ("multikrum", {"byzantine": 4}),
        ("median", {}),
        ("trimmed", {"trim": 0.2}),
        ("geometric", {}),
    ],
)
def test_defences_hold_under_sign_flips(
    fleet, clean_wh, four_faulty, defence: str, settings: dict
) -> None:
    method = get(f"fedavg+{SIGN_FLIP}@{defence}", **four_faulty, **settings)
    assert rmse_wh(fleet, method) < 1.1 * clean_wh
