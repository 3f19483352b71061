"""FedBuff on a real fleet: the simulation's models from the same arrivals, and slow vehicles."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import Message, RecordDict

from fedwatt import Federation, load_fleet
from fedwatt.deploy.buffered_road import BufferedRoad
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.known import Known
from fedwatt.deploy.messages import from_records
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.errors import RunError, SettingError
from fedwatt.federation import Trained
from fedwatt.randomness import generator
from fedwatt.runs import from_toml
from fedwatt.runs.config import RunConfig
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet
from tests.deploy.loopback import KINDS, Loopback

BUFFER = "[asynchronous]\nbuffer = 2\nconcurrency = 3\nstaleness_exponent = 0.5\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("buffered") / "fleet", vehicles=5)


def text(fleet: Path, method: str = "fedavg", rounds: int = 6, more: str = BUFFER) -> str:
    own = config_text(fleet, method, rounds).replace("vehicles = 4", "vehicles = 5")
    return own.replace("[[method]]", f"{more}[[method]]")


@dataclass
class Timed(Loopback):
    """Vehicles that take a while to train: a reply is there when the clock says so."""

    config: RunConfig | None = None
    now: float = 0.0
    due: dict[str, float] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        numbers = super().push_messages(messages)
        for number, message in zip(numbers, messages, strict=True):
            if KINDS[message.metadata.message_type] == "train":
                self.due[number] = self.clock() + self.duration(message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ready = [n for n in message_ids if self.due.get(n, 0.0) <= self.clock()]
        return super().pull_messages(ready)

    def duration(self, message: Message) -> float:
        """What the simulation draws: H_k / speed · exp(jitter · z)."""
        vehicle = self.vehicles[message.metadata.dst_node_id]
        name, version = vehicle.name, int(from_records(message.content).values["round"])
        client = vehicle.client(self.config.data, "measured", None)
        steps = -(-len(client.ends["train"]) // self.config.training.batch)
        z = generator(1, "duration", version, name).standard_normal()
        speed = generator(1, "device", name).choice(self.config.availability.speeds)
        return steps / speed * exp(self.config.asynchronous.jitter * z)


def on_the_road(config: RunConfig, grid: Timed, out: Path) -> tuple[BufferedRoad, Trained]:
    grid.config = config
    exchange = Exchange(grid, 0.01, grid.clock, grid.sleep)
    roster = Roster(exchange, config, out / "roster.jsonl")
    roster.wait()
    own = BufferedRoad.of(roster, config, config.methods[0], RunState.begin(out, resume=False))
    return own, own.loop().train(config.methods[0].method)


def simulated(config: RunConfig, fleet: Path) -> Trained:
    own = load_fleet(fleet, config.data)
    return Federation(
        own,
        config.model.on(own),
        training=config.training,
        availability=config.availability,
        asynchronous=config.asynchronous,
        seeds=config.seeds,
        device="cpu",
    ).train(config.methods[0].method)


def timed(fleet: Path, state: Path) -> Timed:
    return Timed(loopback(fleet, state).vehicles)


@pytest.mark.parametrize(
    ("method", "weighting"), [("fedavg@adam", "uniform"), ("fo-ri-fedavg", "windows")]
)
def test_the_same_arrivals_make_the_simulations_model(
    method: str, weighting: str, fleet: Path, tmp_path: Path
) -> None:
    more = BUFFER + f'weighting = "{weighting}"\n'
    patient = text(fleet, method, more=more).replace("round_seconds = 5", "round_seconds = 1e6")
    config = from_toml(patient)
    expected = simulated(config, fleet)
    _, found = on_the_road(config, timed(fleet, tmp_path / "state"), tmp_path)
    # A stack of one rounds otherwise than a stack of some, in the last bits of float32.
    torch.testing.assert_close(found.state.weights, expected.state.weights, rtol=0, atol=1e-6)
    columns = ("round", "vehicle", "steps", "replied", "staleness")
    rows = [sorted(tuple(row[c] for c in columns) for row in trained.history.clients)
            for trained in (found, expected)]  # fmt: skip
    assert rows[0] == rows[1]
    assert {row[-1] for row in rows[0]} > {0.0}  # some trained a model that was no longer new


def test_replies_that_are_too_old_are_dropped_as_in_the_simulation(
    fleet: Path, tmp_path: Path
) -> None:
    more = BUFFER.replace("buffer = 2", "buffer = 1") + "max_staleness = 1\n"
    config = from_toml(text(fleet, rounds=8, more=more).replace("= 5\npoll", "= 1e6\npoll"))
    expected = simulated(config, fleet)
    _, found = on_the_road(config, timed(fleet, tmp_path / "state"), tmp_path)
    torch.testing.assert_close(found.state.weights, expected.state.weights, rtol=0, atol=1e-6)
    lost = [row for row in found.history.clients if not row["replied"]]
    assert lost and len(lost) == sum(not row["replied"] for row in expected.history.clients)


@dataclass
class Slow(Timed):
    """The first vehicle takes much longer than the others, which differ a little."""

    def duration(self, message: Message) -> float:
        node = message.metadata.dst_node_id
        return 20.0 if node == 1 else 1.0 + 0.1 * node


def test_a_slow_vehicle_holds_up_nobody_and_counts_when_it_is_done(
    fleet: Path, tmp_path: Path
) -> None:
    """Every vehicle is at work at all times, and the slow one's replies are stale."""
    more = BUFFER.replace("concurrency = 3", "concurrency = 5")
    own = text(fleet, rounds=40, more=more).replace("round_seconds = 5", "round_seconds = 100")
    grid = Slow(loopback(fleet, tmp_path / "state").vehicles)
    _, found = on_the_road(from_toml(own), grid, tmp_path)
    clients, name = found.history.clients, grid.vehicles[1].name
    slow = [row["staleness"] for row in clients if row["vehicle"] == name]
    quick = [row["staleness"] for row in clients if row["vehicle"] != name]
    assert all(row["replied"] for row in clients)
    assert len(quick) + len(slow) == 80  # two for each of forty models
    # Four quick vehicles make a model in about 0.7 s, so 25 to 30 while the slow one is at work.
    assert slow and all(25 <= age <= 32 for age in slow)
    assert max(quick) <= 2
    # In rounds of all five, forty would take 800 s.
    assert grid.now < 40


def test_a_vehicle_that_never_answers_is_given_up(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if (kind, node) == ("train", 1) else reply
    own = text(fleet, rounds=3).replace("round_seconds = 5", "round_seconds = 0.3")
    run = deployed(own, grid, tmp_path / "run")
    silent = grid.vehicles[1].name
    rows = [row for row in read_table(run, "clients").to_pylist() if row["vehicle"] == silent]
    assert not any(row["replied"] for row in rows)
    assert read_table(run, "rounds").column("replies").to_pylist()[1:] == [2, 2, 2]


def test_wrong_replies_and_refusals_take_no_place(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if (kind, node) == ("train", 2):
            reply.config_records["values"]["round"] = 99
        return reply

    grid.tamper = tamper
    run = deployed(text(fleet, rounds=4), grid, tmp_path / "run")
    rows = read_table(run, "clients").to_pylist()
    wrong = [row for row in rows if row["vehicle"] == grid.vehicles[2].name]
    assert wrong and all(row["rejected"] for row in wrong) and len(wrong) <= 3  # then set aside


def test_nobody_answers(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    own = text(fleet, rounds=1)
    grid.answer = lambda message: (
        None if KINDS[message.metadata.message_type] == "train" else Loopback.answer(grid, message)
    )
    own = own.replace("round_seconds = 5", "round_seconds = 0.05\npause_seconds = 0.5")
    with pytest.raises(RunError, match="0 of 5 vehicles answered round 1"):
        deployed(own, grid, tmp_path / "run")


def test_a_run_that_was_stopped_goes_on_from_its_last_model(fleet: Path, tmp_path: Path) -> None:
    own = text(fleet, "moon", rounds=5)
    with pytest.raises(KeyboardInterrupt):
        deployed(own, loopback(fleet, tmp_path / "state"), tmp_path / "run", stop=3)
    grid = loopback(fleet, tmp_path / "state")
    run = deployed(own, grid, tmp_path / "run", resume=True)
    assert read_table(run, "rounds").column("round").to_pylist() == [0, 1, 2, 3, 4, 5]
    rows = read_table(run, "clients").to_pylist()
    counted = {row["vehicle"]: row["round"] - 1 - int(row["staleness"])
               for row in rows if row["replied"]}  # fmt: skip
    # A vehicle goes on from the last of its replies that counted, by the model that it trained.
    from safetensors.torch import load_file

    from fedwatt.federation import State

    stored = load_file(run / "checkpoint" / "moon" / "round-000005" / "state.safetensors")
    assert Known.unpacked(State.from_tensors(5, stored).events).counted == counted


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("scaffold", BUFFER, "FedBuff cannot carry 'scaffold'"),
        ("fedavg", BUFFER.replace("buffer = 2", "buffer = 9"), "must be in 1..5"),
        ("fedavg", BUFFER + "[secure]\nenabled = true\n", "Leave out secure.enabled"),
    ],
)
def test_what_cannot_be_buffered_is_refused(
    method: str, more: str, said: str, fleet: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=said):
        grid = loopback(fleet, tmp_path / "state")
        deployed(text(fleet, method, more=more), grid, tmp_path / "run")


@pytest.mark.parametrize("setting", ["relays = 10", "over_selection = 0.5"])
def test_settings_of_rounds_are_refused(setting: str, fleet: Path, tmp_path: Path) -> None:
    own = text(fleet).replace("vehicles = 5", f"vehicles = 5\n{setting}")
    with pytest.raises(SettingError, match=f"Leave out deploy.{setting.split()[0]}"):
        deployed(own, loopback(fleet, tmp_path / "state"), tmp_path / "run")
