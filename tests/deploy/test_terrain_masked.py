"""A fleet learns its hills on Flower's messages, under masks: the simulation's field and model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import RecordDict

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hills_on_server import learn_hills
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.edge.export import read_trained
from fedwatt.elevation.exchange import SharedField, learn_from_totals, share_by
from fedwatt.elevation.field import Field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import learn
from fedwatt.elevation.noise import seeded
from fedwatt.elevation.question import Question
from fedwatt.elevation.store import driven_nodes, read_field, read_provenance
from fedwatt.elevation.survey import survey
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.privacy.fixed_point import Layout, add_up
from fedwatt.report.field_map import write_map
from fedwatt.runs import execute, from_toml
from fedwatt.runs.hills import terrain_budget, vehicle_field
from fedwatt.runs.tables import read_table
from fedwatt.telemetry.store import read_fleet
from tests.deploy.fleets import BOARD, deployed, loopback, pooled, weights
from tests.deploy.hilly import AREA, hilly, hilly_fleet
from tests.deploy.loopback import Loopback, SuperNodes
from tests.runs.test_execute import Silent

STAGES = ["secure-keys", "secure-shares", "secure-terrain", "secure-agree", "secure-reveal"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hilly_fleet(tmp_path_factory.mktemp("hills") / "fleet")


def simulated(text: str, out: Path) -> Path:
    execute(from_toml(text), out, Silent())
    return out


def field_of(run: Path) -> Field:
    return read_field(run / "field.parquet")


def assert_same_field(got: Field, wanted: Field) -> None:
    """To the last bit: both add the same whole numbers."""
    assert got.nodes == wanted.nodes > 0
    for name in ("keys", "elevation_m", "region", "passes", "vehicles"):
        assert np.array_equal(getattr(got, name), getattr(wanted, name)), name


def assert_same_models(got: Path, wanted: Path) -> None:
    expected, found = weights(wanted), weights(got)
    assert expected.keys() == found.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6, msg=name)


def errors_of(run: Path, model: str) -> tuple[float, float]:
    """Windows and RMSE of a model on all test windows of the fleet."""
    return pooled(run, model)[model, "all"]


def in_process(
    fleet: Path, text: str, gone: str = "", since: int = 0
) -> tuple[SharedField, list[str]]:
    """The same exchange without messages or masks, and what was asked in it.

    Vehicle `gone` is called for the question number `since` (from 1) and is in no total from it on;
    0: it was never there.
    """
    config = from_toml(text)
    grid = Grid(cell_m=config.terrain.cell_m)
    surveys = {
        one.name: survey(one, grid, config.terrain.segment_s, config.data)
        for one in read_fleet(fleet)
        if since or one.name != gone
    }
    asked: list[str] = []

    def totals(question: Question, present: frozenset[str]):
        asked.append("count" if question.field is None else "sum")
        layout = Layout(question.fields, vehicles=len(present))
        left = present - {gone} if len(asked) >= since else present
        words = sum(layout.encode(question.answer(surveys[name])) for name in left)
        return layout.decode(words), left

    return learn_from_totals(totals, frozenset(surveys), grid, config.terrain), asked


def own_file(vehicle: Vehicle) -> Path:
    (file,) = vehicle.state.glob("memory/*/hills-*.parquet")
    return file


def test_fleet_and_simulation_choose_the_same_prior_and_read_the_same_elevation(
    fleet: Path, tmp_path: Path
) -> None:
    text = hilly(fleet).replace('source = "learn"\nchoose_prior = false\n', "")
    assert from_toml(text).terrain.measures
    grid = loopback(fleet, tmp_path / "state")
    real = field_of(deployed(text, grid, tmp_path / "real"))
    alike = field_of(simulated(text, tmp_path / "simulated"))
    assert_same_field(real, alike)
    assert real.prior == alike.prior
    config = from_toml(text)
    learned = learn(list(read_fleet(fleet)), config.terrain, config.data, share=share_by(add_up))
    for vehicle in grid.vehicles.values():
        own, expected = read_field(own_file(vehicle)), learned.own[vehicle.name]
        assert np.array_equal(own.keys, expected.keys)
        assert np.array_equal(own.elevation_m, expected.elevation_m)
        assert own.measured == expected.measured


# FedEL's network has more heads than the one that is kept.
@pytest.mark.parametrize("method", ["fo-ri-fedavg", "scaffold", "fedel"])
def test_fleet_and_simulation_learn_the_same_hills_and_model(
    method: str, fleet: Path, tmp_path: Path
) -> None:
    text = hilly(fleet, method, rounds=3)
    grid = loopback(fleet, tmp_path / "state")
    real = deployed(text, grid, tmp_path / "real")
    alike = simulated(text, tmp_path / "simulated")
    assert_same_field(field_of(real), field_of(alike))
    assert field_of(real).vehicles.min() >= 3
    for run, simulation in ((real, alike), (real / "level", alike / "level")):
        assert_same_models(run, simulation)
        # Of the kept model: what vehicles would predict, with the level model where that is so.
        assert errors_of(run, "kept") == pytest.approx(errors_of(simulation, "kept"), rel=1e-4)
    # Each vehicle has its own hills, on top of the shared ones, and they are the simulation's.
    config = from_toml(text)
    learned = learn(list(read_fleet(fleet)), config.terrain, config.data, share=share_by(add_up))
    for vehicle in grid.vehicles.values():
        kept, wanted = read_field(own_file(vehicle)), learned.own[vehicle.name]
        assert kept.nodes > field_of(real).nodes
        for name in ("keys", "elevation_m", "region"):
            assert np.array_equal(getattr(kept, name), getattr(wanted, name)), name
    facts = json.loads((real / "environment.json").read_text())["terrain"]
    assert facts == {"nodes": field_of(real).nodes, "vehicles": 4}
    assert read_provenance(real / "field.parquet").vehicles == {f"car-00{i}" for i in range(1, 5)}
    assert driven_nodes(real / "field.parquet") > field_of(real).nodes
    # On board nobody knows who taught what is shared, and it is not said to be one vehicle's own.
    assert all(read_provenance(own_file(vehicle)) is None for vehicle in grid.vehicles.values())
    write_map(field_of(real), tmp_path / "map.html")
    assert (tmp_path / "map.html").stat().st_size > 1000
    # What goes into a vehicle's model file is on its disk, and is not made up from another fleet.
    trained, vehicle = read_trained(real), grid.vehicles[1]
    with pytest.raises(DataError, match="are on its own disk"):
        vehicle_field(trained.config, real, trained.method, vehicle.name)
    exported = vehicle_field(trained.config, real, trained.method, vehicle.name, own_file(vehicle))
    assert np.array_equal(exported.keys, learned.own[vehicle.name].keys)


def dropping(grid: Loopback, lost: str, node: int, time: int) -> None:
    """Let the `time`-th reply of a vehicle to a stage never arrive, nor any later one."""
    seen: list[int] = []

    def tamper(kind: str, sender: int, reply: RecordDict) -> RecordDict | None:
        if kind == lost and sender == node:
            seen.append(node)
        gone = sender == node and len(seen) >= time and kind in STAGES
        return None if gone else reply

    grid.tamper = tamper


def quick(text: str) -> str:
    text = text.replace("stage_seconds = 5", "stage_seconds = 0.2")
    return text.replace("round_seconds = 5", "round_seconds = 0.5")


@pytest.fixture(scope="module")
def vehicles(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Vehicle]:
    """Vehicles that have read their trips already."""
    return loopback(fleet, tmp_path_factory.mktemp("state")).vehicles


def learned_by(grid: Loopback, text: str, out: Path) -> SharedField:
    """The hills of a run that does nothing else."""
    config, run = from_toml(text), RunState.begin(out, resume=False)
    roster = Roster(Exchange(grid, config.deploy.poll_seconds), config, out / "roster.jsonl")
    roster.wait()
    return learn_hills(roster, run)


DROPS = [
    ("secure-terrain", "first count"),
    *((stage, "second count") for stage in STAGES),
    *((stage, "first sum") for stage in STAGES),
    ("secure-terrain", "second sum"),
]


@pytest.mark.parametrize(("lost", "when"), DROPS)
def test_who_drops_out_leaves_the_field_of_the_others(
    lost: str, when: str, fleet: Path, vehicles: dict[int, Vehicle], tmp_path: Path
) -> None:
    text, grid = quick(hilly(fleet)), Loopback(dict(vehicles))
    gone = grid.vehicles[2].name
    _, usual = in_process(fleet, text)
    sums = usual.index("sum") + 1
    number = {"first count": 1, "second count": 2, "first sum": sums, "second sum": sums + 1}[when]
    dropping(grid, lost, 2, number)
    found = learned_by(grid, text, tmp_path)
    # Whose vector arrived is in that sum, though it never answers again.
    since = number + (lost in ("secure-agree", "secure-reveal"))
    same, _ = in_process(fleet, text, gone, since)
    assert_same_field(found.field, same.field)
    assert (found.field.vehicles == 3).all()
    assert found.contributors == same.contributors
    if since <= sums:
        # In none of the sums, it is as if it had never been there.
        without, _ = in_process(fleet, text, gone)
        assert np.array_equal(found.field.keys, without.field.keys)
        # A sum of four is rounded to 2^-38 a vehicle, a sum of three to 2^-39.
        assert np.abs(found.field.elevation_m - without.field.elevation_m).max() < 1e-6
    assert (gone in found.contributors) == (since > sums)


def test_sums_that_fail_are_tried_again_without_those_who_failed(
    fleet: Path, vehicles: dict[int, Vehicle], tmp_path: Path
) -> None:
    """Two of four gone at once are fewer survivors than a secure sum needs."""
    text = quick(hilly(fleet)).replace("area =", "minimum_vehicles = 2\narea =")
    grid = Loopback(dict(vehicles))
    grid.tamper = lambda kind, node, reply: None if node > 2 and kind in STAGES else reply
    found = learned_by(grid, text, tmp_path)
    assert found.contributors == {vehicles[1].name, vehicles[2].name}
    assert found.field.nodes > 0


def test_a_reply_lost_by_chance_costs_no_hills(
    fleet: Path, vehicles: dict[int, Vehicle], tmp_path: Path
) -> None:
    """Two of four lose one reply each, and three are needed: the others alone are too few."""
    text, grid, lost = quick(hilly(fleet)), Loopback(dict(vehicles)), []

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        if kind == "secure-keys" and node in (1, 2) and node not in lost:
            lost.append(node)
            return None
        return reply

    grid.tamper = tamper
    found = learned_by(grid, text, tmp_path)
    assert sorted(lost) == [1, 2]
    assert_same_field(found.field, in_process(fleet, text)[0].field)


def test_too_few_answers_end_the_run_until_it_is_resumed(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = quick(hilly(fleet)).replace("enrolment_seconds = 5", "enrolment_seconds = 1")
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if node > 2 and kind in STAGES else reply
    names = ", ".join(sorted(grid.vehicles[node].name for node in (3, 4)))
    with pytest.raises(RunError, match=rf"2 vehicles adv.*3 of 4 are.*from {names}\. --resume"):
        deployed(text, grid, tmp_path / "real")
    # And where they are not even there.
    grid.offline = {3, 4}
    with pytest.raises(RunError, match=r"2 of 4 vehicles are there, 3 are needed\. --resume"):
        deployed(text, grid, tmp_path / "real", resume=True)
    assert not (tmp_path / "real" / "field.parquet").exists()
    assert "nothing is published" not in caplog.text
    grid.offline, grid.tamper = set(), lambda kind, node, reply: reply
    real = deployed(text, grid, tmp_path / "real", resume=True)
    assert_same_field(field_of(real), in_process(fleet, text)[0].field)


@pytest.mark.parametrize(
    ("stage", "name", "value", "why"),
    [
        ("secure-keys", "mask_key", bytes(32), "a key is none"),
        ("secure-terrain", "words", b"x", "1 bytes are not"),
    ],
)
def test_whose_messages_are_nonsense_is_said_and_left_out(
    stage: str,
    name: str,
    value: bytes,
    why: str,
    fleet: Path,
    vehicles: dict[int, Vehicle],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two of four, where two are enough: the first sum fails, the others go on without them."""
    text = quick(hilly(fleet)).replace("area =", "minimum_vehicles = 2\narea =")
    grid = Loopback(dict(vehicles))

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == stage and node > 2:
            reply.config_records["values"][name] = value
        return reply

    grid.tamper = tamper
    found = learned_by(grid, text, tmp_path)
    assert found.contributors == {vehicles[1].name, vehicles[2].name} and found.field.nodes > 0
    for node in (3, 4):
        said = f"a message of {vehicles[node].name} rejected: {why}"
        assert caplog.text.count(said) == 1


def test_hills_of_fewer_than_k_are_nobodys_but_their_drivers(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = hilly(fleet, rounds=2).replace("area =", "minimum_vehicles = 5\narea =")
    grid = loopback(fleet, tmp_path / "state")
    real = deployed(text, grid, tmp_path / "real")
    assert not {kind for _, kind, _ in grid.sent} & {"secure-terrain"}
    assert field_of(real).nodes == 0
    assert "4 vehicles have enrolled, and 5 must drive a node" in caplog.text
    assert all(read_field(own_file(v)).nodes > 100 for v in grid.vehicles.values())
    assert_same_models(real, simulated(text, tmp_path / "simulated"))


def test_hills_that_nobody_shares_are_said_to_be_so(
    fleet: Path,
    vehicles: dict[int, Vehicle],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A whole count says so."""
    text = quick(hilly(fleet)).replace(f"area = {AREA}", "area = [10.0, 10.01, 10.0, 10.01]")
    assert learned_by(Loopback(dict(vehicles)), text, tmp_path / "a").field.nodes == 0
    assert "nothing is published, because nobody has driven in terrain.area" in caplog.text


def test_hills_begun_anew_spend_their_noise_anew(fleet: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    noise = "minimum_vehicles = 2\nnoise_multiplier = 0.001\narea ="
    text = quick(hilly(fleet)).replace("area =", noise)
    grid, seen = loopback(fleet, tmp_path / "state"), []

    def killed(kind: str, node: int, reply: RecordDict) -> RecordDict:
        seen.append(kind)
        # By the second sum vehicles have been told which nodes, and a first field.
        if seen.count("secure-terrain") == 9:
            raise KeyboardInterrupt
        return reply

    grid.tamper = killed
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "real")
    grid.tamper = lambda kind, node, reply: reply
    real = deployed(text, grid, tmp_path / "real", resume=True)
    own = terrain_budget(from_toml(text).terrain, population=4)
    facts = json.loads((real / "environment.json").read_text())["terrain"]
    # Counts and three sums, begun twice.
    assert facts["epsilon"] == own.epsilon(8) > own.epsilon(4)


def test_noise_is_the_servers_own(
    fleet: Path,
    vehicles: dict[int, Vehicle],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("dp_accounting")
    noise = "minimum_vehicles = 2\nnoise_multiplier = 0.001\nnoise_seed = 7\narea ="
    text = hilly(fleet).replace("area =", noise)
    real = deployed(text, Loopback(dict(vehicles)), tmp_path / "real")
    drawn = field_of(real)
    # √2000 · 0.001 = 0.04 vehicles of noise: those of three or four pass for more than two.
    assert drawn.nodes > 60 and drawn.vehicles.min() == 3
    facts = json.loads((real / "environment.json").read_text())["terrain"]
    assert facts["noise_multiplier"] == 0.001 and facts["epsilon"] > 1000
    assert driven_nodes(real / "field.parquet") == 0
    # With a simulation's noise it is the simulation's field, and with its own it is not.
    alike, asked = in_process(fleet, text)
    assert asked == ["count", "sum", "sum", "sum"]
    assert not np.array_equal(drawn.elevation_m, alike.field.elevation_m)
    monkeypatch.setattr("fedwatt.deploy.hills_on_server.secret_draws", seeded(7))
    found = learned_by(Loopback(dict(vehicles)), text, tmp_path / "again")
    assert_same_field(found.field, alike.field)


def test_a_place_that_only_k_drive_is_hidden_when_one_of_them_goes(
    fleet: Path,
    vehicles: dict[int, Vehicle],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = quick(hilly(fleet)).replace("area =", "minimum_vehicles = 4\narea =")
    grid = Loopback(dict(vehicles))
    # Gone after counting: the others' sums would be of three, and are not made at all.
    sums = in_process(fleet, text)[1].index("sum") + 1
    dropping(grid, "secure-terrain", 2, sums)
    with pytest.raises(RunError, match=f"3 vehicles adv.*from {vehicles[2].name}.*--resume"):
        learned_by(grid, text, tmp_path)
    assert "nothing is published" not in caplog.text
    assert [kind for _, kind, _ in grid.sent].count("secure-reveal") == 4 * (sums - 1)


def test_a_run_that_goes_on_does_not_learn_again(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, "scaffold", rounds=3)
    whole = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "whole")
    grid = loopback(fleet, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=3 + 1)  # after the level model's rounds
    before = (tmp_path / "cut" / "field.parquet").read_bytes()
    # One vehicle restarts, one loses its field, one finds it cut short by a loss of power.
    for node in (1, 2, 3):
        vehicle = grid.vehicles[node]
        file = own_file(vehicle)
        grid.vehicles[node] = Vehicle(vehicle.folder, vehicle.state, board=BOARD)
        if node == 2:
            file.unlink()
        if node == 3:
            file.write_bytes(file.read_bytes()[:100])
    sent = len(grid.sent)
    resumed = deployed(text, grid, tmp_path / "cut", resume=True)
    again = [kind for _, kind, _ in grid.sent[sent:]]
    assert "secure-terrain" not in again and again.count("terrain-field") == 4
    assert (resumed / "field.parquet").read_bytes() == before
    assert_same_models(resumed, whole)


def test_a_damaged_field_says_what_to_delete(fleet: Path, tmp_path: Path) -> None:
    text, grid = hilly(fleet, rounds=2), loopback(fleet, tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "real", stop=2 + 1)  # after the level model's rounds
    file = tmp_path / "real" / "field.parquet"
    file.write_bytes(b"")
    with pytest.raises(RunError, match=r"Delete \S+field\.parquet, and \S+checkpoint"):
        deployed(text, grid, tmp_path / "real", resume=True)
    file.unlink()
    shutil.rmtree(tmp_path / "real" / "checkpoint")
    real = deployed(text, grid, tmp_path / "real", resume=True)
    assert_same_field(field_of(real), in_process(fleet, text)[0].field)


def test_a_field_lost_in_mid_run_is_sent_again(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, rounds=4)
    grid = loopback(fleet, tmp_path / "state")

    def forget(kind: str, node: int, reply: RecordDict) -> RecordDict:
        # Four rounds of the level model come first.
        if kind == "secure-train" and node == 1 and grid.training == 4 + 1:
            vehicle = grid.vehicles[1]
            own_file(vehicle).unlink()
            grid.vehicles[1] = Vehicle(vehicle.folder, vehicle.state, board=BOARD)
        return reply

    grid.tamper = forget
    real = deployed(text, grid, tmp_path / "real")
    replied = read_table(real, "clients").column("replied").to_pylist()
    # Out of the second round, and perhaps of the third, while the field is on its way.
    assert 1 <= replied.count(False) <= 2
    assert replied[:4] == replied[-4:] == [True] * 4
    assert own_file(grid.vehicles[1]).exists()


def test_who_joins_later_is_sent_the_field(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, rounds=4).replace("vehicles = 4", "vehicles = 3")
    grid = loopback(fleet, tmp_path / "state")
    grid.offline = {1}

    def join(grid: Loopback) -> None:
        if grid.training >= 4 + 1:  # after four rounds of the level model
            grid.offline = set()

    grid.before_push = join
    real = deployed(text, grid, tmp_path / "real")
    late = grid.vehicles[1]
    assert late.name not in read_provenance(real / "field.parquet").vehicles
    assert read_field(own_file(late)).nodes > field_of(real).nodes
    rows = read_table(real, "clients").to_pylist()
    trained = [row["round"] for row in rows if row["vehicle"] == late.name and row["replied"]]
    assert trained[-1] == 4 and 1 not in trained
    asked = {kind for node, kind, _ in grid.sent if node == 1}
    assert "secure-terrain" not in asked and "terrain-field" in asked


def test_a_run_goes_on_without_those_who_cannot_take_the_field(
    fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def full(question: Content, config: object) -> Content:
        raise DataError("the disk is full")

    grid.vehicles[1].hills.take = full
    real = deployed(hilly(fleet), grid, tmp_path / "real")
    assert "node 1 could not take the field" in caplog.text
    called = read_table(real, "clients").column("vehicle").to_pylist()
    assert len(called) == 3 and grid.vehicles[1].name not in called


def test_a_field_that_reaches_nobody_ends_the_run_until_it_is_resumed(
    fleet: Path, tmp_path: Path
) -> None:
    text, grid = quick(hilly(fleet)), loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if kind == "terrain-field" else reply
    with pytest.raises(RunError, match="--resume tries again"):
        deployed(text, grid, tmp_path / "real")
    grid.tamper = lambda kind, node, reply: reply
    real = deployed(text, grid, tmp_path / "real", resume=True)
    assert read_table(real, "clients").column("replied").to_pylist() == [True] * 4


def test_who_is_held_out_teaches_nothing_and_reads_what_is_shared(
    fleet: Path, tmp_path: Path
) -> None:
    text = hilly(fleet, rounds=2).replace("window = 10", "window = 10\nheld_out = 1")
    grid = loopback(fleet, tmp_path / "state")
    real = deployed(text, grid, tmp_path / "real")
    alike = simulated(text, tmp_path / "simulated")
    assert_same_field(field_of(real), field_of(alike))
    assert_same_models(real, alike)
    taught = read_provenance(real / "field.parquet").vehicles
    (out,) = [node for node, v in grid.vehicles.items() if v.name not in taught]
    assert ("secure-terrain", out) not in {(kind, node) for node, kind, _ in grid.sent}
    assert read_field(own_file(grid.vehicles[out])).nodes == field_of(real).nodes


def test_a_hilly_fleet_personalises(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet, rounds=2)
    personal = "[personal]\nenabled = true\nrates = [0.01]\nsteps = [5, 10]\n"
    text = text.replace("[secure]", personal + "[secure]")
    real = deployed(text, loopback(fleet, tmp_path / "state"), tmp_path / "real")
    alike = simulated(text, tmp_path / "simulated")

    for model in ("kept", "personal"):
        assert errors_of(real, model) == pytest.approx(errors_of(alike, model), rel=1e-4)


def test_each_message_may_have_a_process_of_its_own(fleet: Path, tmp_path: Path) -> None:
    """Flower's SuperNode: a new vehicle object for every message, secrets in the node's context."""
    grid = SuperNodes(loopback(fleet, tmp_path / "a").vehicles, tmp_path / "board")
    text = hilly(fleet).replace("area =", "refreshes = 1\narea =")
    processes = deployed(text, grid, tmp_path / "processes")
    one = deployed(text, loopback(fleet, tmp_path / "b"), tmp_path / "one")
    assert_same_field(field_of(processes), field_of(one))
    assert_same_models(processes, one)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("enabled = true", "enabled = false", r"under masks only.*secure\.enabled = true"),
        (f"area = {AREA}", "", r"terrain\.area = \[SOUTH, NORTH, WEST, EAST\]"),
        ("area =", "refresh_every = 2\narea =", "has no masks"),
        ("area =", "cell_m = 20.0\nsegment_s = 20\narea =", "Choose shorter segments"),
    ],
)
def test_what_cannot_be_learned_under_masks_is_refused(
    old: str, new: str, why: str, fleet: Path, tmp_path: Path
) -> None:
    text = hilly(fleet).replace(old, new)
    grid = loopback(fleet, tmp_path / "state")
    with pytest.raises(SettingError, match=why):
        deployed(text, grid, tmp_path / "run")
    assert not grid.sent
    if "enabled = false" not in text:
        with pytest.raises(SettingError, match=why):
            execute(from_toml(text), tmp_path / "simulated", Silent())


@pytest.mark.parametrize(
    ("area", "why"),
    [
        ([44.0, 49.0, -30.0, -20.0], "at most 1,000,000 nodes"),
        ([44.0, 45.0, -30.0], "south, north, west and east"),
        ([45.0, 44.0, -30.0, -29.0], "above south_deg"),
        ([44.0, 45.0, -30.0, -30.0], "other than west_deg"),
        ([44.0, 45.0, -300.0, -30.0], "from -180 to 360"),
    ],
)
def test_an_area_is_a_box_of_sensible_size(area: list[float], why: str, fleet: Path) -> None:
    with pytest.raises(SettingError, match=why):
        from_toml(hilly(fleet).replace(f"area = {AREA}", f"area = {area}"))


# A word of a count is 2^61 a vehicle: minus four vehicles, and two that drive nothing.
@pytest.mark.parametrize(("added", "why"), [(2**63, "which cannot be"), (2**62, "one is at fault")])
def test_a_vehicle_that_adds_nonsense_is_noticed(
    added: int, why: str, fleet: Path, vehicles: dict[int, Vehicle], tmp_path: Path
) -> None:
    grid = Loopback(dict(vehicles))

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "secure-terrain" and node == 1:
            record = reply.config_records["values"]
            words = np.frombuffer(record["words"], dtype="<u8").copy()
            words[:1] += np.uint64(added)
            record["words"] = words.tobytes()
        return reply

    grid.tamper = tamper
    with pytest.raises(RunError, match=why):
        learned_by(grid, hilly(fleet), tmp_path)


def test_a_vehicle_answers_for_the_service_area_and_k_vehicles_only(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "a")
    vehicle = grid.vehicles[1]
    answer, refused = vehicle.answer, []

    def probed(kind: str, records: RecordDict) -> RecordDict:
        if kind == "secure-terrain" and not refused:
            asked = from_records(records)
            elsewhere = {"nodes": np.array([5], dtype=np.int64)}
            none = {"nodes": np.zeros(0, dtype=np.int64)}
            stricter = asked.values["config"].replace(
                "minimum_vehicles = 3", "minimum_vehicles = 4"
            )
            for question, why in (
                (Content(asked.values, elsewhere), "other nodes"),
                (Content(asked.values, none), "other nodes"),
                (Content({**asked.values, "config": stricter}, asked.arrays), "unless 4 drive"),
                (Content({**asked.values, "count": False}, asked.arrays), "lacks 'field.keys'"),
            ):
                # What this vehicle alone is asked is not what the sum's keys were made for, and
                # what all are asked must be about the area and k vehicles.
                with pytest.raises(DataError, match="different questions"):
                    answer(kind, to_records(question))
                config = from_toml(str(question.values["config"]))
                with pytest.raises(DataError, match=why):
                    vehicle.hills.masked(question, config, vehicle.secrets)
                refused.append(why)
        if kind == "terrain-field":
            asked = from_records(records)
            wrong = dict(asked.arrays) | {"field.elevation_m": np.array([np.nan])}
            with pytest.raises(DataError, match="holds no field"):
                answer(kind, to_records(Content(asked.values, wrong)))
            refused.append("NaN")
        asked = from_records(records)
        if kind == "secure-evaluate" and "hills" in asked.values and "field" not in refused:
            bare = {name: v for name, v in asked.values.items() if name != "hills"}
            for values, why in (
                ({**bare, "hills": "0" * 32}, "not on board yet"),
                ({**bare, "hills": "../x"}, "names no field"),
                (bare, "lacks the hills"),
            ):
                question = Content(values, asked.arrays)
                with pytest.raises(DataError, match="different questions"):
                    answer(kind, to_records(question))
                with pytest.raises(DataError, match=why):
                    vehicle._task(question)
            refused.append("field")
        return answer(kind, records)

    vehicle.answer = probed
    deployed(hilly(fleet), grid, tmp_path / "run")
    assert len(refused) == 6
