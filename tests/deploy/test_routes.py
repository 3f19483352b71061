"""A fleet on Flower's messages learns its routes under masks: the simulation's, and no more."""

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from flwr.app import RecordDict
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy.board import Board
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hills_on_server import PublishedHills, secret_draws
from fedwatt.deploy.messages import REPLIES, Content, from_records, to_records
from fedwatt.deploy.policy import OPEN, Refusal
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.routes_on_server import RoadPupils, learn_routes
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.elevation.store import read_field
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.driving_exchange import DRIVING, DrivingQuestion, learn_driving
from fedwatt.journeys.driving_field import DrivingSums
from fedwatt.journeys.fleet_routes import JUDGED, FleetRoutes
from fedwatt.journeys.route import HEADINGS
from fedwatt.journeys.route_exchange import SimulatedPupils, learn_from_pupils
from fedwatt.journeys.route_files import fleet_from_bytes, fleet_to_bytes
from fedwatt.journeys.route_questions import RouteQuestion
from fedwatt.privacy.fixed_point import Layout, add_up
from fedwatt.runs import from_toml
from fedwatt.runs.config import to_toml
from fedwatt.runs.routes import learn_run_routes, run_routes, vehicle_routes
from fedwatt.telemetry.store import read_vehicle
from tests.deploy.boards import guarded
from tests.deploy.fleets import BOARD, deployed, loopback
from tests.deploy.hilly import hilly, hilly_fleet
from tests.deploy.loopback import Loopback
from tests.deploy.test_terrain_bytes import Line, Sent

CARS = 4


def routed(fleet: Path) -> str:
    """Hills and routes, and no feature that needs hills."""
    text = hilly(fleet).replace('features = "base, terrain"', 'features = "base"')
    return text.replace("[deploy]\n", "[deploy]\nroutes = true\n")


class PowerCut(Exception):
    """The server is gone, and wrote nothing about it."""


@dataclass
class Learned:
    """A run folder, the line that its vehicles were on, and the question it was cut off at."""

    run: Path
    line: Line
    cut: int


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hilly_fleet(tmp_path_factory.mktemp("routes") / "fleet")


@pytest.fixture(scope="module")
def learned(
    fleet: Path, tmp_path_factory: pytest.TempPathFactory, lasting_identity: None
) -> Learned:
    """A run whose server was killed before the last exchanges of its routes, and started again.

    Its vehicles have the default policy: they answer each question once, and sign their keys.
    """
    folder = tmp_path_factory.mktemp("run")
    line = Line(guarded(fleet, folder / "state"))

    def until_the_last(message):
        if from_records(message.content).values.get("asks") == "correction":
            raise PowerCut
        return line.answer(message)

    line.grid.answer = until_the_last
    with pytest.raises(PowerCut):
        deployed(routed(fleet), line.grid, folder / "run")
    cut, line.grid.answer = len(line.sent), line.answer
    return Learned(deployed(routed(fleet), line.grid, folder / "run", resume=True), line, cut)


@pytest.fixture(scope="module")
def simulated(fleet: Path) -> FleetRoutes:
    return learn_run_routes(from_toml(routed(fleet)))


def assert_same_routes(found: FleetRoutes, wanted: FleetRoutes) -> None:
    assert np.array_equal(found.driving.keys, wanted.driving.keys) and len(found.driving.keys)
    np.testing.assert_allclose(found.driving.sums, wanted.driving.sums, rtol=0, atol=1e-6)
    assert np.array_equal(found.driving.vehicles, wanted.driving.vehicles)
    for target, own in wanted.effects.items():
        for name in ("unit", "mean", "spread", "noise"):
            expected = getattr(own, name)
            got = getattr(found.effects[target], name)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        for name in JUDGED:
            assert np.array_equal(found.counts[target][name], wanted.counts[target][name])
    np.testing.assert_allclose(found.correction, wanted.correction, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.narrower, wanted.narrower, rtol=1e-6, atol=1e-6)
    assert (found.vehicles, found.insiders) == (wanted.vehicles, wanted.insiders)


def test_fleet_and_simulation_learn_the_same_routes(
    learned: Learned, fleet: Path, simulated: FleetRoutes
) -> None:
    config = from_toml(routed(fleet))
    found = run_routes(learned.run, config)
    assert_same_routes(found, simulated)
    assert found.vehicles == CARS and found.driving.vehicles.min() >= 3
    facts = json.loads((learned.run / "environment.json").read_text())["routes"]
    assert facts == {"cells": len(found.driving.keys), "vehicles": CARS}
    # A vehicle's own model, with its private cells, predicts the same as well.
    vehicle = read_vehicle(fleet / "car-001")
    (learned.run.parent / "simulated").mkdir()
    (learned.run.parent / "simulated" / "routes.json").write_bytes(fleet_to_bytes(simulated))
    own, alike = (
        vehicle_routes(learned.run.parent / name, config, vehicle) for name in ("run", "simulated")
    )
    assert len(own.field.cells.keys) > len(found.driving.keys)
    for target, coefficients in alike.coefficients.items():
        np.testing.assert_allclose(own.coefficients[target].beta, coefficients.beta, rtol=1e-6)


def test_the_run_folder_of_a_real_fleet_predicts_routes(learned: Learned, fleet: Path) -> None:
    folder = fleet / "car-001"
    trip = read_vehicle(folder).trips[0].name
    options = ["--vehicle", str(folder), "--temperature", "5"]
    command = ["route", str(learned.run), str(folder / trip), *options]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "kWh" in shown.output and "90 % of cases" in shown.output


def test_a_server_that_was_killed_asks_no_sum_again(learned: Learned) -> None:
    asked = [one.asked.values for one in learned.line.sent if one.kind == "secure-routes"]
    before = [one for one in learned.line.sent[: learned.cut] if one.kind == "secure-routes"]
    # Three sums for the driving field, one of units, twelve of effects and one of errors; then
    # three for the correction and one of errors under way.
    assert len(before) == CARS * 17
    assert len(asked) - len(before) == CARS * 4
    assert {values["asks"] for values in asked[len(before) :]} == {"correction", "under way"}


def of_routes(learned: Learned) -> list[Sent]:
    """All that was sent while routes were learned."""
    sums = {s.says.values["exchange"] for s in learned.line.sent if s.kind == "secure-routes"}
    return [
        one
        for one in learned.line.sent
        if one.kind == "driving-field" or one.says.values.get("exchange") in sums
    ]


def clear_words(sent: Sent, vehicle: Vehicle, text: str) -> np.ndarray:
    """The words that a reply would have held without masks."""
    config, kind = from_toml(text), sent.asked.values["asks"]
    if kind in DRIVING:
        asked = DrivingQuestion.read(kind, sent.asked.arrays, config.terrain)
        answer = asked.answer(vehicle.routes.board(sent.asked, config).sums)
    else:
        asked = RouteQuestion.read(kind, sent.asked.arrays)
        answer = asked.answer(vehicle.routes.pupil(sent.asked, config))
    return Layout(asked.fields, vehicles=CARS).encode(answer)


def test_every_byte_of_learning_routes(learned: Learned, fleet: Path) -> None:
    phase, vehicles, text = of_routes(learned), learned.line.grid.vehicles, routed(fleet)

    # 1. The declared fields and no others.
    for one in phase:
        assert {*one.says.values, *one.says.arrays} == set(REPLIES[one.kind])

    # 2. No value of the telemetry, no position as text, no place that anybody drove.
    everything = b"".join(one.data for one in phase)
    pieces = {everything[at : at + 8] for at in range(len(everything) - 7)}
    question, values = next(s.asked for s in phase if s.kind == "secure-routes"), 0
    own = {n: v.routes.board(question, from_toml(text)) for n, v in vehicles.items()}
    for number, vehicle in vehicles.items():
        for trip in read_vehicle(vehicle.folder).trips:
            for name, channel in trip.channels.items():
                for value in np.unique(channel[np.isfinite(channel) & (np.abs(channel) > 1e-6)]):
                    if value != round(value):  # 1.0 and 20.0 are nobody's secret
                        assert value.tobytes() not in pieces
                        values += 1
                if name in ("latitude_deg", "longitude_deg"):
                    assert not any(f"{v:.4f}".encode() in everything for v in channel[::50])
        for key in own[number].sums.keys:
            assert key.tobytes() not in pieces
            assert (key // HEADINGS).tobytes() not in pieces
    assert values > 10_000

    # 3. Under masks nothing is as it is in the clear: no vehicle's numbers, and no sum below k.
    exchanges: dict[bytes, dict[int, Sent]] = defaultdict(dict)
    for one in phase:
        if one.kind == "secure-routes":
            exchanges[one.says.values["exchange"]][one.node] = one
    whole = [replies for replies in exchanges.values() if len(replies) == CARS]
    assert len(whole) == 21
    alone = 0
    for replies in whole:
        words = {n: np.frombuffer(r.says.values["words"], dtype="<u8") for n, r in replies.items()}
        clear = {n: clear_words(r, vehicles[n], text) for n, r in replies.items()}
        for few in (1, 2):
            for some in combinations(words, few):
                total, hidden = sum(words[n] for n in some), sum(clear[n] for n in some)
                assert not (total == hidden).any()
                alone += few == 1 and int((hidden != 0).sum())
        for number, vector in words.items():
            bits = np.unpackbits(vector.view(np.uint8))
            # 5 standard deviations of fair coins.
            assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(len(bits))
            secret = clear[number][clear[number] % np.uint64(2**32) != 0]  # no count
            assert not {word.tobytes() for word in secret} & pieces
    assert alone > 1000

    # 4. Vehicles that drove elsewhere, and more or less, send messages of one length.
    assert len({len(board.sums.keys) for board in own.values()}) == CARS
    lengths = defaultdict(set)
    for one in phase:
        # Others have signatures, of 70 to 72 bytes.
        if one.kind in ("secure-routes", "driving-field"):
            lengths[one.kind, one.says.values.get("exchange")].add(len(one.data))
    assert all(len(several) == 1 for several in lengths.values())

    # 5. Sums are asked for, and published, where three vehicles drive, by cell and without a time.
    counts = defaultdict(int)
    for board in own.values():
        for key in board.sums.keys:
            counts[key] += 1
    asked = [s.asked for s in phase if s.asked.values.get("asks") == "sums"]
    given = [s.asked for s in phase if s.kind == "driving-field"]
    for one in (*asked, *given):
        assert min(counts[key] for key in one.arrays["keys"]) >= 3
    hills = {f"hills.{part}" for part in ("keys", "elevation_m", "region", "prior")}
    assert set(given[0].arrays) == {"keys", "sums", "vehicles"} | hills


def willing(learned: Learned) -> dict[int, Vehicle]:
    """The same vehicles with a policy that allows all."""
    return {
        number: Vehicle(one.folder, one.state, board=BOARD)
        for number, one in learned.line.grid.vehicles.items()
    }


def server(grid: Loopback, learned: Learned, text: str, out: Path) -> RoadPupils:
    """Another server of the same run, which remembers no sum; its vehicles answer again."""
    number = RunState.read(learned.run / "deployment.json").run
    config, state = from_toml(text), RunState.begin(out, resume=False, number=number)
    roster = Roster(Exchange(grid, config.deploy.poll_seconds), config, out / "roster.jsonl")
    roster.wait()
    field = read_field(learned.run / "field.parquet")
    common = {"run": number, "config": to_toml(config)}
    roster.provision = PublishedHills(field, common, config.deploy.round_seconds)
    roster.provision.wait(roster)
    return RoadPupils(roster, state, roster.provision)


def driven_by(pupils: RoadPupils) -> tuple[DrivingSums, frozenset[str]]:
    """The driving field alone, and whose passes are in it."""
    names, settings = frozenset(pupils.roster.members), pupils.roster.config.terrain
    return learn_driving(pupils.total, names, settings, secret_draws)


def test_who_drops_out_leaves_the_routes_of_the_others(
    learned: Learned, fleet: Path, tmp_path: Path
) -> None:
    """Its passes are in the driving field, and its trips teach no coefficients."""
    text = routed(fleet).replace("stage_seconds = 5", "stage_seconds = 0.2")
    grid, gone = Loopback(willing(learned)), 2

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        return None if kind == "driving-field" and node == gone else reply

    grid.tamper = tamper
    text = text.replace("round_seconds = 5", "round_seconds = 0.5")
    there = server(grid, learned, text, tmp_path)
    found = learn_routes(there.roster, there.run, there.hills)
    config = from_toml(routed(fleet))
    question = next(s.asked for s in of_routes(learned) if s.kind == "secure-routes")
    boards = {v.name: v.routes.board(question, config) for v in grid.vehicles.values()}

    class Others(SimulatedPupils):
        def share(self, shared, present):
            return super().share(shared, present) - {grid.vehicles[gone].name}

    others = Others(boards, add_up)
    whole = run_routes(learned.run, config)
    hills = read_field(learned.run / "field.parquet")
    wanted = learn_from_pupils(others, whole.driving, frozenset(boards), config.terrain, hills)
    assert_same_routes(found, wanted)
    assert found.vehicles == 3 and len(found.insiders) == 4


def test_an_owner_who_shares_no_driving_still_trains(
    learned: Learned, fleet: Path, tmp_path: Path
) -> None:
    shy = Board(replace(OPEN, routes=False))
    vehicles = willing(learned)
    vehicles[1] = Vehicle(vehicles[1].folder, vehicles[1].state, board=shy)
    there = server(Loopback(vehicles), learned, routed(fleet), tmp_path)
    _, insiders = driven_by(there)
    assert insiders == {vehicles[n].name for n in (2, 3, 4)}
    roster = there.roster
    assert roster.conduct.refusals[vehicles[1].name] == {"routes": 1}
    # It enrolled and took the hills; the driving field it would not take.
    assert roster.there(vehicles[1].name)
    question = Content({"run": "r", "config": routed(fleet)})
    with pytest.raises(Refusal, match="does not let it share how it drives"):
        vehicles[1].answer("driving-field", to_records(question))


def test_noise_is_the_servers_own_and_leaves_what_it_cannot_explain(
    learned: Learned, fleet: Path, tmp_path: Path
) -> None:
    text = routed(fleet).replace("area =", "noise_multiplier = 0.00001\narea =")
    first, second = (
        driven_by(server(Loopback(willing(learned)), learned, text, tmp_path / name))[0]
        for name in "ab"
    )
    exact = run_routes(learned.run, from_toml(routed(fleet))).driving
    # A deviation of 0.2 m and s on every sum: no two draws are alike, and none is the exact sum.
    assert len(first.keys) and set(first.keys) <= set(exact.keys)
    one, other = first.within(second.keys), second.within(first.keys)
    assert (np.abs(one.sums - other.sums)[:, :3] > 0).all()
    off = one.sums - exact.within(one.keys).sums
    assert 0.1 < off[:, :3].std() < 0.4
    assert (first.vehicles == 3).all()  # k, and not how many


def test_routes_on_the_road_need_masks_and_an_area(fleet: Path, tmp_path: Path) -> None:
    for old, new, why in (
        ("enabled = true", "enabled = false", r"deploy\.routes needs masks"),
        ("area =", "refresh_every = 2\narea =", "has no masks"),
    ):
        with pytest.raises(SettingError, match=why):
            deployed(routed(fleet).replace(old, new), loopback(fleet, tmp_path), tmp_path / "run")


def test_a_run_that_shared_no_routes_says_so(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "deployment.json").write_text("{}")
    with pytest.raises(DataError, match=r"Submit a run with deploy\.routes = true"):
        run_routes(tmp_path, from_toml(routed(fleet)))


def test_a_driving_field_below_k_or_out_of_order_is_not_taken(
    learned: Learned, fleet: Path
) -> None:
    given = next(s.asked for s in of_routes(learned) if s.kind == "driving-field")
    vehicle, config = learned.line.grid.vehicles[1], from_toml(routed(fleet))
    arrays = dict(given.arrays)
    for change, why in (
        ({"vehicles": arrays["vehicles"] - 1}, "fewer than 3 vehicles"),
        ({"keys": arrays["keys"][::-1]}, "no driving field"),
        ({"sums": arrays["sums"][:-1]}, "no driving field"),
        ({"sums": arrays["sums"] * np.nan}, "no driving field"),
        ({"sums": arrays["sums"].astype(np.float32)}, "lacks 'sums'"),
    ):
        with pytest.raises(DataError, match=why):
            vehicle.routes.take(Content(given.values, {**arrays, **change}), config)
    # A vehicle that lost what it was sent, or is named another, answers nothing.
    asked = next(s.asked for s in of_routes(learned) if s.asked.values.get("asks") == "units")
    for digest, why in (("0" * 32, "not on board"), ("../x", "names no driving field")):
        with pytest.raises(DataError, match=why):
            vehicle.routes.pupil(Content({**asked.values, "driving": digest}), config)


def test_the_file_says_who_is_in_it(simulated: FleetRoutes) -> None:
    again = fleet_from_bytes(fleet_to_bytes(simulated), "here")
    assert again.insiders == {f"car-00{n}" for n in range(1, CARS + 1)}
