"""The level model of a run with hills: trained first, and what a vehicle without climb uses."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import Message, RecordDict
from safetensors.torch import load_file

from fedwatt.deploy import node
from fedwatt.deploy.execute import refuse_undeployable
from fedwatt.deploy.memory import KEPT_RUNS, forget_old_runs, level_run, memory_folder, remember
from fedwatt.deploy.messages import MESSAGE_TYPES, REPLIES, Content, from_records, to_records
from fedwatt.deploy.progress import LogLines, describe_run
from fedwatt.deploy.state_folder import StateFolder
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.elevation.level import LEVEL
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.federation.kept import GLOBAL_MODELS
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs import execute, from_toml
from fedwatt.runs.config import to_toml
from fedwatt.runs.level import level_config
from fedwatt.runs.tables import read_table
from fedwatt.windows.client import build_client
from tests.deploy.fleets import BOARD, deploy, deployed, loopback, pooled, weights
from tests.deploy.hilly import hilly, hilly_fleet
from tests.deploy.loopback import KINDS, Loopback, SuperNodes
from tests.runs.test_execute import Silent

LOST = "car-002"
"""The vehicle without a receiver."""
PERSONAL = "[personal]\nenabled = true\nrates = [0.01, 0.03]\nsteps = [20, 60]\n"
ROUNDS = 3


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hilly_fleet(tmp_path_factory.mktemp("level") / "fleet", lost=LOST)


def configuration(fleet: Path, method: str = "fedavg", rounds: int = ROUNDS) -> str:
    text = hilly(fleet, method, rounds).replace("area =", "minimum_vehicles = 2\narea =")
    return text.replace("[deploy]", PERSONAL + "[deploy]")


def without_terrain(text: str) -> str:
    return text.replace('features = "base, terrain"', 'features = "base"')


def listening(grid: Loopback) -> list[tuple[int, str, RecordDict]]:
    """Questions that vehicles are asked from now on: node, kind and records."""
    asked: list[tuple[int, str, RecordDict]] = []
    answer = grid.answer

    def heard(message: Message) -> Message | None:
        kind = KINDS[message.metadata.message_type]
        asked.append((message.metadata.dst_node_id, kind, message.content))
        return answer(message)

    grid.answer = heard
    return asked


def table(run: Path, name: str) -> list[dict[str, Any]]:
    """A table of a run, with None where there is no number: NaN is not itself."""
    found = read_table(run, name).to_pylist()
    return [{key: None if own != own else own for key, own in row.items()} for row in found]


def telling(grid: Loopback) -> list[tuple[str, str, bool, dict[str, list[float]]]]:
    """What vehicles add under masks from now on: name, kind, whether with a level model, sums."""
    told: list[tuple[str, str, bool, dict[str, list[float]]]] = []

    def heard(vehicle: Vehicle, kind: str) -> None:
        own = getattr(vehicle, f"_{kind}")

        def kept(task):
            errors = own(task)
            sums = {stratum: one.as_array().tolist() for stratum, one in errors.items()}
            told.append((vehicle.name, kind, LEVEL in task.question.arrays, sums))
            return errors

        setattr(vehicle, f"_{kind}", kept)

    for vehicle in grid.vehicles.values():
        for kind in ("strata", "personalise"):
            heard(vehicle, kind)
    return told


def in_the_clear(question: Content) -> Content:
    """The same question in a run without masks."""
    values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
    config = replace(from_toml(str(values["config"])), secure=SecureSettings())
    return replace(question, values={**values, "config": to_toml(config)})


def rows(run: Path, vehicle: str = "", *models: str) -> list[dict[str, Any]]:
    """Errors by model and stratum; of one vehicle, if named."""
    found = [row for row in table(run, "vehicles") if vehicle in ("", row["vehicle"])]
    return [row for row in found if not models or row["model"] in models]


def overall(run: Path, model: str) -> dict[str, float]:
    return {r["vehicle"]: r["rmse"] for r in rows(run, "", model) if r["stratum"] == "all"}


class Whole:
    """A run with everything, and what was asked and answered in it."""

    def __init__(self, fleet: Path, folder: Path) -> None:
        self.text, self.grid = configuration(fleet), loopback(fleet, folder / "state")
        self.asked, self.told = listening(self.grid), telling(self.grid)
        self.run = deployed(self.text, self.grid, folder / "run")


@pytest.fixture(scope="module")
def whole(fleet: Path, lasting_identity: None, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(fleet, tmp_path_factory.mktemp("whole"))


def node_of(grid: Loopback, name: str) -> int:
    return next(node for node, vehicle in grid.vehicles.items() if vehicle.name == name)


def test_who_has_no_positions_predicts_as_in_a_fleet_without_terrain(
    whole: Whole, fleet: Path, tmp_path: Path
) -> None:
    level, grid = without_terrain(whole.text), loopback(fleet, tmp_path / "state")
    told = telling(grid)
    plain = deployed(level, grid, tmp_path / "plain")
    # Not nearly: they are the same numbers. Those who know their hills use another network.
    for kind in ("strata", "personalise"):
        used = {name: sums for name, k, beside, sums in whole.told if k == kind and beside}
        others = [(name, sums) for name, k, _, sums in told if k == kind]
        assert [name for name in sorted(used) if (name, used[name]) in others] == [LOST]
    # The level model is that fleet's, in a run folder of its own.
    assert rows(whole.run / LEVEL) == rows(plain)
    for model in GLOBAL_MODELS:
        got, wanted = weights(whole.run / LEVEL, model), weights(plain, model)
        assert got.keys() == wanted.keys()
        assert all(torch.equal(got[name], wanted[name]) for name in wanted)


def test_the_simulation_uses_the_same_models(whole: Whole, tmp_path: Path) -> None:
    execute(from_toml(whole.text), tmp_path / "simulated", Silent())
    for run, alike in (
        (whole.run, tmp_path / "simulated"),
        (whole.run / LEVEL, tmp_path / "simulated" / LEVEL),
    ):
        wanted, got = weights(alike, "kept"), weights(run, "kept")
        assert wanted.keys() == got.keys()
        for name in wanted:
            torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)
        for model in (*GLOBAL_MODELS, "personal"):
            mine, theirs = pooled(run, model), pooled(alike, model)
            assert mine.keys() == theirs.keys()
            for key, errors in mine.items():
                # A stack of one rounds otherwise than a stack of four.
                assert errors == pytest.approx(theirs[key], rel=1e-4)


def test_two_questions_hold_the_level_model_and_no_answer_says_more(whole: Whole) -> None:
    shared = load_file(whole.run / LEVEL / "model.safetensors")
    best = [part.reshape(-1) for name, part in shared.items() if "/best/" in name]
    told: dict[str, set[bool]] = {}
    for _, kind, records in whole.asked:
        question = from_records(records)
        told.setdefault(kind, set()).add(LEVEL in question.arrays)
        if LEVEL in question.arrays:
            assert sorted(question.arrays[LEVEL]) == sorted(torch.cat(best).tolist())
    # The last model and those of the level run are asked about without it.
    assert told.pop("secure-strata") == told.pop("secure-personalise") == {True, False}
    assert set.union(*told.values()) == {False}
    for _, kind, reply in whole.grid.sent:
        content = from_records(reply)
        assert {*content.values, *content.arrays} == REPLIES[kind].keys()


def last(asked: list[tuple[int, str, RecordDict]], node: int, kind: str) -> Content:
    """The last question of a kind that holds a level model."""
    found = [from_records(r) for n, k, r in asked if (n, k) == (node, f"secure-{kind}")]
    return in_the_clear([question for question in found if LEVEL in question.arrays][-1])


WRONG: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "too short": lambda level: level[:-1],
    "too long": lambda level: np.append(level, np.float32(0)),
    "a table": lambda level: level[None],
    "not a number": lambda level: level * np.float32(np.nan),
}


@pytest.mark.parametrize("kind", ["strata", "personalise"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_level_model_that_does_not_fit_is_refused(
    wrong: str, kind: str, whole: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    vehicle, question = whole.grid.vehicles[1], last(whole.asked, 1, kind)
    arrays = {**question.arrays, LEVEL: WRONG[wrong](question.arrays[LEVEL])}
    asked = Message(to_records(Content(question.values, arrays)), 1, MESSAGE_TYPES[kind])
    asked.metadata.__dict__["_message_id"] = "1"
    # The vehicle's own log says why, and the server is told nothing.
    reply = node.answer(vehicle, asked)
    assert reply.has_error() and reply.error.reason == node.NO_ANSWER
    size = len(question.arrays[LEVEL])
    said = f"question '{kind}': the question holds no level model of {size} finite float32 weights"
    assert said in caplog.text


def test_a_level_model_is_there_where_the_run_has_one_and_nowhere_else(whole: Whole) -> None:
    vehicle = whole.grid.vehicles[1]
    question = last(whole.asked, 1, "personalise")
    bare = Content(question.values, {"weights": question.arrays["weights"]})
    with pytest.raises(DataError, match="no level model of"):
        vehicle.answer("personalise", to_records(bare))
    before = from_toml(str(question.values["config"]))
    config = replace(before, terrain=replace(before.terrain, level_model=False))
    off = {**question.values, "config": to_toml(config)}
    for kind in ("strata", "personalise"):
        with pytest.raises(DataError, match="its run has none"):
            vehicle.answer(kind, to_records(Content(off, question.arrays)))


def test_an_own_level_model_is_kept_for_the_model_file(whole: Whole) -> None:
    for vehicle in whole.grid.vehicles.values():
        file = StateFolder.of(vehicle.state, whole.run / LEVEL).personal("fedavg")
        own, other = (
            load_file(file),
            load_file(StateFolder.of(vehicle.state, whole.run).personal("fedavg")),
        )
        shared = load_file(whole.run / LEVEL / "model.safetensors")
        assert {n: t.shape for n, t in own.items()} == {
            n: shared[f"fedavg/best/seed-1/{n}"].shape for n in own
        }
        assert own["hidden1.weight"].numel() < other["hidden1.weight"].numel()


def test_a_run_and_its_level_model_are_one_of_the_runs_that_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT_RUNS + 2):
        for run in (level_run(f"run-{number}"), f"run-{number}"):
            forget_old_runs(tmp_path, run)
            remember(memory_folder(tmp_path, run, "scaffold"), 0, {"control": torch.ones(2)})
    files = [file.relative_to(tmp_path / "memory") for file in tmp_path.rglob("round-*")]
    kept = sorted((file.parts[0][:5], file.parts[1] == LEVEL) for file in files)
    assert kept == [(f"run-{n}", level) for n in (2, 3, 4) for level in (False, True)]


def test_windows_are_read_once_for_each_of_the_two(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, int]] = []

    def counting(vehicle, settings):
        built.append((vehicle.name, len(settings.columns)))
        return build_client(vehicle, settings)

    monkeypatch.setattr("fedwatt.deploy.vehicle.build_client", counting)
    text = configuration(fleet, rounds=1) + '[[method]]\nname = "fedprox"\n'
    deployed(text, loopback(fleet, tmp_path / "state"), tmp_path / "run")
    # Enrolled on level roads, the level model, the hills; whatever is asked later.
    assert [columns for name, columns in built if name == LOST] == [10, 8, 10]


def assert_same_run(got: Path, wanted: Path) -> None:
    """To the last bit, the level model's folder included."""
    for folder, alike in ((got, wanted), (got / LEVEL, wanted / LEVEL)):
        for name in ("rounds", "clients", "vehicles"):
            assert table(folder, name) == table(alike, name), name
        mine, theirs = (load_file(one / "model.safetensors") for one in (folder, alike))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_run_cut_off_in_the_level_models_rounds_goes_on(
    whole: Whole, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        deployed(whole.text, loopback(fleet, tmp_path / "state"), run, stop=2)
    first, doing, *_ = describe_run(run)
    assert first == "fedavg, level roads: 2 rounds done"
    assert doing.startswith("The run is interrupted since")
    with pytest.raises(RunError, match="already holds a run"):
        deployed(whole.text, loopback(fleet, tmp_path / "state"), run)
    # New processes everywhere.
    grid = loopback(fleet, tmp_path / "state")
    caplog.set_level("INFO", "fedwatt.deploy")
    deploy(from_toml(whole.text), run, grid, LogLines(), resume=True)
    assert_same_run(run, whole.run)
    done = [f"fedavg, level roads: {ROUNDS} rounds done", f"fedavg: {ROUNDS} rounds done"]
    assert list(describe_run(run))[:2] == done
    said = [
        "fedavg, level roads: continuing after round 2",
        f"fedavg, level roads: round {ROUNDS}/{ROUNDS}, 4 of 4 replies",
        "fedavg: begins",
    ]
    places = [caplog.text.index(line) for line in said]
    assert places == sorted(places)


@pytest.mark.parametrize("left", ["all", "no level model"])
def test_a_run_cut_off_between_the_two_goes_on(
    left: str, whole: Whole, fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def killed(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "secure-terrain":
            raise KeyboardInterrupt
        return reply

    grid.tamper = killed
    with pytest.raises(KeyboardInterrupt):
        deployed(whole.text, grid, tmp_path / "run")
    assert (tmp_path / "run" / LEVEL / "environment.json").exists()
    assert not (tmp_path / "run" / "checkpoint").exists()
    if left == "no level model":
        shutil.rmtree(tmp_path / "run" / LEVEL)
    grid = loopback(fleet, tmp_path / "state")
    asked = listening(grid)
    deployed(whole.text, grid, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole.run)
    # What is finished is not asked about again.
    runs = {str(from_records(records).values.get("run", "")) for _, _, records in asked}
    assert any(run.endswith(f"/{LEVEL}") for run in runs) == (left == "no level model")


def test_a_level_model_that_is_lost_says_what_to_delete(
    whole: Whole, fleet: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    grid = loopback(fleet, tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        deployed(whole.text, grid, run, stop=ROUNDS + 1)
    (run / LEVEL / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"Delete \S+environment\.json: --resume then makes"):
        deployed(whole.text, grid, run, resume=True)
    (run / LEVEL / "environment.json").unlink()
    deployed(whole.text, grid, run, resume=True)
    assert_same_run(run, whole.run)


def test_who_joins_after_the_level_models_rounds_makes_its_own_then(
    whole: Whole, fleet: Path, tmp_path: Path
) -> None:
    text, grid = whole.text.replace("\nvehicles = 4", "\nvehicles = 3"), loopback(fleet, tmp_path)
    late = node_of(grid, LOST)
    grid.offline = {late}

    def join(grid: Loopback) -> None:
        if grid.training > ROUNDS:
            grid.offline = set()

    grid.before_push, asked = join, listening(grid)
    told_under_masks = telling(grid)
    run = deployed(text, grid, tmp_path / "run")
    assert LOST not in overall(run / LEVEL, "personal")
    names = {name for name, kind, beside, _ in told_under_masks if kind == "personalise" and beside}
    assert names == {v.name for v in grid.vehicles.values()}
    # It is what the vehicle would have told, had it been there.
    question = last(asked, late, "personalise")
    level = level_config(from_toml(text))
    assert level is not None
    config = to_toml(replace(level, secure=SecureSettings()))
    values = {"config": config, "label": "fedavg", "run": "another"}
    told = from_records(
        Vehicle(grid.vehicles[late].folder, tmp_path / "new", board=BOARD).answer(
            "personalise", to_records(Content(values, {"weights": question.arrays[LEVEL]}))
        )
    )
    sums = told.arrays["sums"][told.values["strata"].index("all")].tolist()
    own = [s for name, k, b, s in told_under_masks if (name, k, b) == (LOST, "personalise", True)]
    assert own[-1]["all"] == sums
    kept = StateFolder.of(grid.vehicles[late].state, run / LEVEL).personal("fedavg")
    # It is kept, and used from then on; one that is damaged is made anew.
    before = kept.stat().st_mtime_ns
    again = to_records(question)
    answer = from_records(grid.vehicles[late].answer("personalise", again)).arrays["sums"]
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(b"damaged")
    anew = from_records(grid.vehicles[late].answer("personalise", again)).arrays["sums"]
    assert np.array_equal(anew, answer) and load_file(kept)


def test_each_message_may_have_a_process_of_its_own(
    whole: Whole, fleet: Path, tmp_path: Path
) -> None:
    grid = SuperNodes(loopback(fleet, tmp_path / "state").vehicles, tmp_path / "board")
    assert_same_run(deployed(whole.text, grid, tmp_path / "run"), whole.run)


def test_it_can_be_switched_off(fleet: Path, tmp_path: Path) -> None:
    text = configuration(fleet, rounds=1).replace("area =", "level_model = false\narea =")
    grid = loopback(fleet, tmp_path / "state")
    asked = listening(grid)
    run = deployed(text, grid, tmp_path / "run")
    assert not (run / LEVEL).exists() and grid.training == 1
    assert not any(LEVEL in from_records(records).arrays for _, _, records in asked)
    assert rows(run, "", "kept")


def test_noise_for_privacy_is_not_spent_twice(fleet: Path) -> None:
    text = configuration(fleet, "fedavg@private")
    with pytest.raises(SettingError, match=r"budget twice.*terrain\.level_model = false"):
        refuse_undeployable(from_toml(text))
    refuse_undeployable(from_toml(text.replace("area =", "level_model = false\narea =")))
