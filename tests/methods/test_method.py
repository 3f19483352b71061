"""Methods: which rules go together, and what they cost."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods import METHODS, Average, LocalRule, Method, Proximal, get
from fedwatt.methods.dynamic import Dynamic, DynamicServer
from fedwatt.methods.method import costs
from fedwatt.methods.rule import Rows
from fedwatt.methods.scaffold import ControlVariates, Scaffold
from fedwatt.methods.server import ServerRule
from fedwatt.models import MLP, Model
from fedwatt.tables import Column


@dataclass(frozen=True, kw_only=True)
class Freezing(LocalRule):
    """Uploads two numbers per vehicle, and cannot work beside a pull."""

    server_half = "Thawing"

    def uploads(self, model: Model) -> Rows:
        return {"frozen": torch.zeros(2)}

    def conflict(self, other: LocalRule) -> str:
        return "what is frozen cannot be pulled." if isinstance(other, Proximal) else ""


@dataclass(frozen=True, kw_only=True)
class Thawing(Average):
    local_half: ClassVar[type[LocalRule]] = Freezing


def test_a_rule_of_ones_own_declares_what_it_hands_up() -> None:
    method = Method("own", (Freezing(),), Thawing())
    model = MLP(2, 3, (4,))
    assert method.upload_names == ["frozen"]
    assert method.uploads(model)["frozen"].tolist() == [0.0, 0.0]
    assert get("fednova").upload_names == ["accumulation"]
    assert get("scaffold").uploads(model)["control_change"].shape == (6 * 4 + 4 + 4 + 1,)


@pytest.mark.parametrize("local", [(Freezing(), Proximal()), (Proximal(), Freezing())])
def test_a_rule_of_ones_own_declares_its_conflicts(local: tuple[LocalRule, ...]) -> None:
    with pytest.raises(SettingError, match="Method 'own': what is frozen cannot be pulled"):
        Method("own", local, Thawing())


@pytest.mark.parametrize(
    ("local", "server", "halves"),
    [
        ((Freezing(),), Average(), "Freezing in the vehicles and Thawing on the server"),
        ((), Thawing(), "Freezing in the vehicles and Thawing on the server"),
        ((ControlVariates(),), Average(), "ControlVariates in the vehicles and Scaffold on"),
        ((), Scaffold(), "ControlVariates in the vehicles and Scaffold on"),
        ((Dynamic(),), Average(), "Dynamic in the vehicles and DynamicServer on"),
        ((), DynamicServer(), "Dynamic in the vehicles and DynamicServer on"),
    ],
)
def test_half_a_mechanism_is_refused(
    local: tuple[LocalRule, ...], server: ServerRule, halves: str
) -> None:
    with pytest.raises(SettingError, match=halves):
        Method("half", local, server)


def test_what_would_go_up_outside_the_clipped_vector_is_named() -> None:
    with pytest.raises(SettingError, match="Freezing uploads frozen beside Δ_k"):
        Method("own", (Freezing(),), get("fedavg@private").server)


def test_only_noise_makes_a_server_private() -> None:
    assert get("fedavg@private", noise_multiplier=0.5).server.private
    assert not get("fedavg@private", noise_multiplier=0.0).server.private
    assert not get("scaffold").server.private


@dataclass(frozen=True, kw_only=True)
class Twofold(LocalRule):
    """Records and uploads under one name."""

    records: ClassVar[tuple[Column, ...]] = (Column("warmth", float, "of the vehicle"),)

    def uploads(self, model: Model) -> Rows:
        return {"warmth": torch.zeros(())}


def test_what_is_recorded_and_what_is_handed_up_have_names_of_their_own() -> None:
    with pytest.raises(SettingError, match="'warmth' is uploaded and recorded"):
        Method("own", (Twofold(),))


MODEL = MLP(6, 3, (5, 4))
D = 18 * 5 + 5 + 5 * 4 + 4 + 4 + 1


@pytest.mark.parametrize(
    ("name", "down", "up", "vehicle", "server"),
    [
        ("fedavg", D, D, 0, 0),
        ("fedprox", D, D, 0, 0),
        ("scaffold", 2 * D, 2 * D, D, D),
        ("fednova", D, D + 1, 0, 0),
        ("fedadam", D, D, 0, 2 * D),
        ("moon", D, D, D + 1, 0),
        ("feddyn", D, D, D, D),
        ("fo-ri-fedavg", D, D, 2, 0),
        ("ditto", D, D, D + 1, 0),
        ("fedrep", D, D, (4 + 1) + 1, 0),  # the head, and whether there is one
        ("fedbabu", D, D, 0, 0),
        ("ifca", 2 * D + 1, D + 2, 0, 2 * D + 2 + 2),  # two centres
    ],
)
def test_costs_of_named_methods(name: str, down: int, up: int, vehicle: int, server: int) -> None:
    cost = costs(get(name), MODEL)
    assert (cost.down, cost.up, cost.vehicle, cost.server) == (down, up, vehicle, server)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_sends_less_than_a_model(name: str) -> None:
    cost = costs(get(name), MODEL)
    assert cost.weights == D
    assert cost.down >= D
    assert cost.up >= D
