"""A real fleet keeps nothing from round to round: all is in the state, and in the vehicles."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import numpy as np
import torch
from flwr.app import RecordDict
from safetensors.torch import load_file

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.known import Known
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.policy import OPEN
from fedwatt.deploy.progress import describe_run
from fedwatt.deploy.remote_fleet import RemoteFleet
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secure_fleet import SecureFleet
from fedwatt.deploy.state import RunState
from fedwatt.federation import Loop, RoundRecord, State
from fedwatt.federation.work import no_work
from fedwatt.privacy import budget
from fedwatt.randomness import generator
from fedwatt.runs import from_toml
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet
from tests.deploy.loopback import KINDS, Loopback

SECURE = "[secure]\nenabled = true\nstage_seconds = 5\n[[method]]"
SECRET = 10
"""Draws three of four vehicles in each of the first rounds."""
NOISY = "noise_multiplier = 0.5\nclip_norm = 0.05\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("remote") / "fleet")


def remote(
    text: str, grid: Loopback, out: Path, secret: int | None = None
) -> tuple[RemoteFleet, Loop]:
    """A server that has just started, with a known secret or one of its own."""
    config = from_toml(text)
    run = RunState.begin(out, resume=True)
    roster = Roster(Exchange(grid, 0.001), config, out / "roster.jsonl")
    roster.wait()
    kind = SecureFleet if config.secure.enabled else RemoteFleet
    own = kind.of(roster, config, config.methods[0], run)
    if secret is not None:
        own = replace(own, secret=secret, noise=lambda: generator(secret, "noise"))
    return own, own.loop()


def texts(fleet: Path, method: str, secure: bool) -> str:
    more = NOISY if "private" in method else ""
    text = config_text(fleet, method, rounds=4, more=more)
    if more:
        text = text.replace("batch = 16", 'batch = 16\nsampling = "poisson"')
    return text.replace("[[method]]", SECURE) if secure else text


def asked_in(loop: Loop, state: State, grid: Loopback, method) -> tuple[State, RoundRecord, list]:
    """The next round, and the questions about models that vehicles were asked in it."""
    questions, push = [], grid.push_messages

    def noting(messages):
        messages = list(messages)
        for message in messages:
            kind, content = KINDS[message.metadata.message_type], from_records(message.content)
            if "weights" in content.arrays:
                # Keys and shares of a secure sum are fresh each time, and none of the loop's.
                values = {n: v for n, v in content.values.items() if not n.startswith("secure.")}
                arrays = {name: array.tolist() for name, array in content.arrays.items()}
                questions.append((kind, message.metadata.dst_node_id, values, arrays))
        return push(messages)

    grid.push_messages = noting
    after, record = loop.advance(method, state)
    grid.push_messages = push
    return after, record, questions


@pytest.mark.parametrize(
    ("method", "secure"),
    # Vehicles' own noise under masks is never the same.
    [("scaffold", False), ("scaffold", True), ("fedavg@private", False)],
)
def test_the_same_state_has_the_same_next_one(
    method: str, secure: bool, fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    text = texts(fleet, method, secure)
    own, loop = remote(text, grid, tmp_path, secret=SECRET)
    state, _ = loop.start(own.method)
    state, _ = loop.advance(own.method, state)
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    after, record, questions = asked_in(loop, state, grid, own.method)
    own, loop = remote(text, grid, tmp_path, secret=SECRET)
    again, same, repeated = asked_in(loop, state, grid, own.method)
    assert any("train" in kind for kind, *_ in questions)
    # Under masks vehicles answer once, and the server goes on with the sum that it kept.
    assert repeated == ([] if secure else questions)
    assert repr((same.rounds, same.clients)) == repr((record.rounds, record.clients))
    for name, tensor in again.tensors().items():
        assert torch.equal(tensor, after.tensors()[name]), name
        assert torch.equal(state.tensors()[name], before[name]), name


def test_noise_is_the_operating_systems_and_counted_on_disk(fleet: Path, tmp_path: Path) -> None:
    text = texts(fleet, "fedavg@private", secure=False)
    own, _ = remote(text, loopback(fleet, tmp_path / "state"), tmp_path)
    nobody = no_work(torch.zeros(1, 2))
    draws = [own.server_draws(0, 0, nobody).standard_normal() for _ in range(3)]
    assert len(set(draws)) == 3
    assert RunState.read(tmp_path / "deployment.json").releases == {"fedavg@private": 3}


def test_a_repeated_private_round_is_counted(fleet: Path, tmp_path: Path) -> None:
    """A server dies when vehicles have seen the model of round 3 and no checkpoint has it."""
    text = texts(fleet, "fedavg@private", secure=False)
    grid = loopback(fleet, tmp_path / "state")

    def die(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "evaluate" and grid.models and RunState.read(numbers).releases[LABEL] == 3:
            raise KeyboardInterrupt
        return reply

    numbers, LABEL = tmp_path / "run" / "deployment.json", "fedavg@private"
    grid.tamper = die
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "run")
    grid = loopback(fleet, tmp_path / "state")
    run = deployed(text, grid, tmp_path / "run", resume=True)
    own = budget(from_toml(text).methods[0].method, participation=0.7, population=4)
    spent = read_table(run, "rounds").column("epsilon").to_pylist()
    # Two rounds as they were; the third one was made twice, so four rounds have cost five.
    assert spent == pytest.approx([own.epsilon(n) for n in (0, 1, 2, 4, 5)])
    facts = json.loads((run / "environment.json").read_text())["privacy"][LABEL]
    assert (facts["repeated"], facts["epsilon_server"]) == (1, None)
    assert any("ε = " in line for line in describe_run(run))


def test_all_who_are_there_add_noise_to_a_private_sum(fleet: Path, tmp_path: Path) -> None:
    text = texts(fleet, "fedavg@private", secure=True)
    text = text.replace("noise_multiplier = 0.5", "noise_multiplier = 3.0")
    grid = loopback(fleet, tmp_path / "state")
    own, loop = remote(text, grid, tmp_path, secret=SECRET)
    state, _ = loop.start(own.method)
    after, record, questions = asked_in(loop, state, grid, own.method)
    asked = [values for kind, _, values, _ in questions if kind == "secure-train"]
    # The same question for all: they draw for themselves who trains.
    assert len(asked) == 4 and all(values == asked[0] for values in asked)
    assert record.rounds[0]["participants"] == record.rounds[0]["replies"] == 4
    # Four of four survive where three must: noise of √(4/3)·z·c on the sum, over q·K = 2.8.
    step = (after.weights - state.weights)[0].double()
    assert float(step.std()) == pytest.approx((4 / 3) ** 0.5 * 3.0 * 0.05 / 2.8, rel=0.15)


def test_a_checkpoint_knows_whose_replies_counted_and_how_vehicles_judged(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        if (kind, node) == ("evaluate", 1) and grid.training == 2:
            return to_records(Content({}, {"validation": np.full(6, np.nan)}))
        return None if (kind, node) == ("train", 2) and grid.training == 2 else reply

    grid.tamper = tamper
    text = config_text(fleet, "fedavg", rounds=2).replace(
        "participation = 0.7", "participation = 1"
    )
    text = text.replace("round_seconds = 5", "round_seconds = 0.2")
    run = deployed(text, grid, tmp_path / "run")
    stored = load_file(run / "checkpoint" / "fedavg" / "round-000002" / "state.safetensors")
    known = Known.unpacked(State.from_tensors(2, stored).events)
    names = {node: vehicle.name for node, vehicle in grid.vehicles.items()}
    # Numbers of rounds begin at 0. Of vehicle 1 the judgement of the round before is known.
    assert known.counted == {name: 0 if node == 2 else 1 for node, name in names.items()}
    assert known.validation.keys() == set(names.values())


def test_the_best_of_a_resumed_run_is_chosen_on_the_same_vehicles(
    fleet: Path, tmp_path: Path
) -> None:
    """The vehicle that is hardest to predict is away when the server comes back."""
    text = config_text(fleet, "fedavg", rounds=3)

    def away(grid: Loopback) -> Loopback:
        def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
            if kind != "evaluate" or node != 1:
                return reply
            content = from_records(reply)
            sums = {name: array.copy() for name, array in content.arrays.items()}
            sums["validation"][1] = np.nan if grid.training == 3 else 1e9
            return to_records(Content(content.values, sums))

        grid.tamper = tamper
        return grid

    whole = away(loopback(fleet, tmp_path / "x"))
    deployed(text, whole, tmp_path / "whole")
    cut = away(loopback(fleet, tmp_path / "y"))
    with pytest.raises(KeyboardInterrupt):
        deployed(text, cut, tmp_path / "cut", stop=2)
    deployed(text, cut, tmp_path / "cut", resume=True)
    states = [
        load_file(tmp_path / out / "checkpoint" / "fedavg" / "round-000003" / "state.safetensors")
        for out in ("whole", "cut")
    ]
    for name in ("best_validation", "best_round", "mean_validation", "events.validation"):
        assert torch.equal(states[0][name], states[1][name]), name


def test_a_sample_judges_a_large_fleet_and_says_how_sure_it_is(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(RemoteFleet, "judges", 2)
    grid = loopback(fleet, tmp_path / "state")
    with caplog.at_level("INFO", "fedwatt.deploy"):
        deployed(config_text(fleet, "fedavg", rounds=1), grid, tmp_path / "run")
    judging = {node for node, kind, _ in grid.sent if kind == "evaluate"}
    assert len(judging) == 2 < len(grid.vehicles)
    told = [line for line in caplog.messages if "by a sample of 2 of 4 vehicles" in line]
    assert told and all("± nan" not in line for line in told)


def test_a_vehicle_sends_no_longer_step_than_its_policy_allows(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    for vehicle in grid.vehicles.values():
        vehicle.guard = replace(vehicle.guard, policy=replace(OPEN, largest_step=0.01))
    deployed(config_text(fleet), grid, tmp_path / "run")
    sent = [from_records(reply) for _, kind, reply in grid.sent if kind == "train"]
    lengths = [float(np.linalg.norm(one.arrays["delta"])) for one in sent]
    # Without the limit they are ten times as long; float32 has seven digits.
    assert lengths and lengths == pytest.approx([0.01] * len(lengths), rel=1e-6)
