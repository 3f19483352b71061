"""Simulated faults: who is faulty and what they send."""

import pytest
import torch

from examples.faulty_vehicles import (
    FaultRule,
    GaussianUpdate,
    LabelShift,
    ScaledUpdate,
    SignFlip,
    is_faulty,
)
from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import get
from fedwatt.models import MLP
from tests.federation.toys import Line, a_start, random_fleet
from tests.methods.replies import normal

NAMES = [f"car-{k:03d}" for k in range(400)]
FAULTY = "examples.faulty_vehicles:"
FAULTS = ("SignFlip", "ScaledUpdate", "GaussianUpdate", "LabelShift")


def sent(
    rule: FaultRule, deltas: torch.Tensor, round: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the uploads of vehicles with displacements `deltas`, and which are faulty."""
    vehicles = tuple(NAMES[: len(deltas)])
    start = a_start(torch.zeros_like(deltas), Line(), vehicles=vehicles, round=round)
    _, plan = rule.begin({}, start)
    return rule.reply(deltas, plan), plan["faulty"][:, 0]


def test_a_vehicle_is_faulty_by_its_name_alone() -> None:
    drawn = [is_faulty(name, seed=3, share=0.2) for name in NAMES]
    # 80 expected with a deviation of 8; half a dozen deviations would mean a broken draw.
    assert 40 < sum(drawn) < 120
    _, faulty = sent(SignFlip(fault_seed=3), normal(50, 2))
    assert faulty.tolist() == drawn[:50]
    assert not any(is_faulty(name, seed=3, share=0.0) for name in NAMES)
    assert all(is_faulty(name, seed=3, share=1.0) for name in NAMES)
    # Whoever is faulty at a share is so at every larger one.
    assert all(is_faulty(n, seed=3, share=0.5) for n, d in zip(NAMES, drawn, strict=True) if d)


@pytest.mark.parametrize(("rule", "factor"), [(SignFlip(), -4.0), (ScaledUpdate(), 100.0)])
def test_faulty_vehicles_scale_their_reply(rule: FaultRule, factor: float) -> None:
    deltas = normal(30, 5)
    handed_up, faulty = sent(rule, deltas)
    assert 0 < faulty.sum() < 30
    assert torch.equal(handed_up[~faulty], deltas[~faulty])
    assert torch.equal(handed_up[faulty], factor * deltas[faulty])


def test_noise_is_as_long_as_asked_and_new_every_round() -> None:
    deltas = normal(30, 4000)
    rule = GaussianUpdate(fault_scale=10.0)
    handed_up, faulty = sent(rule, deltas)
    later, _ = sent(rule, deltas, round=1)
    assert torch.equal(handed_up[~faulty], deltas[~faulty])
    ratio = handed_up[faulty].norm(dim=-1) / deltas[faulty].norm(dim=-1)
    # ‖z‖/√D is 1 with a deviation of 1/√(2·4000) = 0.011.
    torch.testing.assert_close(ratio, torch.full_like(ratio, 10.0), rtol=0.06, atol=0)
    assert torch.cosine_similarity(handed_up[faulty], later[faulty]).abs().max() < 0.1


def test_a_shifted_label_is_a_shifted_prediction() -> None:
    prediction = torch.tensor([[1.0, 2.0]])
    plan = {"faulty": torch.tensor([[True]])}
    rule = LabelShift(fault_scale=3.0)
    trained = rule.prediction(prediction, Line(), {}, torch.zeros(1), plan)
    labels = torch.tensor([[0.5, -1.0]])
    assert torch.equal(trained - labels, prediction - (labels + 3.0))


@pytest.mark.parametrize("name", FAULTS)
def test_without_faulty_vehicles_nothing_changes(name: str) -> None:
    def weights(method, **settings) -> torch.Tensor:
        training = Training(rounds=2, participation=1.0, batch=16)
        federation = Federation(random_fleet(), MLP(4, 8, (6, 5)), training=training, device="cpu")
        return federation.train(get(method, **settings)).state.weights

    honest = weights("fedavg")
    pretended = weights(f"fedavg+{FAULTY}{name}", fault_share=0.0)
    assert torch.equal(pretended, honest)
    assert not torch.allclose(weights(f"fedavg+{FAULTY}{name}", fault_share=1.0), honest, atol=1e-3)


def test_a_fault_survives_an_early_exit() -> None:
    def weights(method: str, **settings) -> torch.Tensor:
        federation = Federation(
            random_fleet(),
            MLP(4, 8, (6, 5)),
            training=Training(rounds=2, participation=1.0, batch=16),
            availability=Availability(speeds=(1.0, 0.4, 0.2)),
            device="cpu",
        )
        return federation.train(get(method, **settings)).state.weights

    before, after = (
        weights(name, fault_share=1.0)
        for name in (f"{FAULTY}LabelShift+fedel", f"fedel+{FAULTY}LabelShift")
    )
    assert torch.equal(before, after)
    assert not torch.allclose(before, weights("fedel"), atol=1e-3)


def test_one_fault_at_a_time() -> None:
    with pytest.raises(SettingError, match="one fault at a time"):
        get(f"fedavg+{FAULTY}SignFlip+{FAULTY}LabelShift")
    with pytest.raises(SettingError, match="fault_share must be in"):
        SignFlip(fault_share=1.5)
