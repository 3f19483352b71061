"""Grids of cells: finished ones are kept, and it does not matter where they are computed."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.methods import get
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.simulation import Simulation
from fedwatt.tuning.grid import _task, run_cells, versions
from fedwatt.tuning.tasks import train_in_tasks
from fedwatt.tuning.tune import Tuned, tune
from tests.cluster import on_ray
from tests.examples import EXAMPLES
from tests.runs.test_execute import CONFIG, Silent, results
from tests.tuning.test_tune import CONFIG as STUDY

CELLS = {f"cell-{number}": number for number in range(5)}


def square(cell: int, shared: Any, folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "answer.json").write_text(json.dumps(cell**2 + (shared or 0)))


def answers(paths: dict[str, Path]) -> dict[str, int]:
    return {
        name: json.loads((path / "deep" / "answer.json").read_text())
        for name, path in paths.items()
    }


def test_every_cell_leaves_its_folder(tmp_path: Path) -> None:
    messages = []
    paths = run_cells(CELLS, square, tmp_path, shared=1, on_done=lambda *a: messages.append(a))
    assert answers(paths) == {f"cell-{n}": n**2 + 1 for n in range(5)}
    assert messages == [(f"cell-{n}", n + 1, 5) for n in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(CELLS)


def fails_at_three(cell: int, shared: Any, folder: Path) -> None:
    square(cell, None, folder)
    if cell == 3:
        raise DataError("Three is too much.")


def test_a_grid_that_stopped_goes_on_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Three is too much"):
        run_cells(CELLS, fails_at_three, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cell-0", "cell-1", "cell-2"]
    messages = []
    paths = run_cells(CELLS, square, tmp_path, on_done=lambda *a: messages.append(a))
    assert answers(paths) == {f"cell-{n}": n**2 for n in range(5)}
    assert messages == [("cell-3", 4, 5), ("cell-4", 5, 5)]


def test_a_finished_cell_of_other_settings_is_refused(tmp_path: Path) -> None:
    run_cells({"cell": 1}, square, tmp_path)
    with pytest.raises(RunError, match="was made with other settings"):
        run_cells({"cell": 2}, square, tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_names_that_are_no_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="names a folder"):
        run_cells({name: 1}, square, tmp_path)


def test_methods_trained_as_tasks_are_those_of_one_process(tmp_path: Path) -> None:
    config = from_toml(CONFIG)
    Run(config, out=tmp_path / "here", observer=Silent()).execute()

    def elsewhere(config, out, fleet) -> None:
        train_in_tasks(config, out, fleet, ray=None)

    Run(
        config, Simulation(train_elsewhere=elsewhere), out=tmp_path / "tasks", observer=Silent()
    ).execute()
    cells = sorted(path.name for path in (tmp_path / "tasks" / "cells").iterdir())
    assert cells == ["fedavg", "fo-ri-fedavg"]
    assert results(tmp_path / "tasks") == results(tmp_path / "here")


# ---------------------------------------------------------------------------------- on Ray


@on_ray
def test_a_run_on_ray_is_the_run_of_one_process(cluster, tmp_path: Path) -> None:
    config = from_toml(CONFIG)
    Run(config, out=tmp_path / "here", observer=Silent()).execute()

    def elsewhere(config, out, fleet) -> None:
        train_in_tasks(config, out, fleet, ray=cluster.address)

    Run(
        config, Simulation(train_elsewhere=elsewhere), out=tmp_path / "there", observer=Silent()
    ).execute()
    assert results(tmp_path / "there") == results(tmp_path / "here")
    # Continued, nothing is left to do, neither there nor here.
    again = Silent()
    Run(
        config,
        Simulation(train_elsewhere=elsewhere),
        out=tmp_path / "there",
        observer=again,
        resume=True,
    ).execute()
    assert again.rounds == 0
    assert results(tmp_path / "there") == results(tmp_path / "here")


@on_ray
def test_a_study_on_ray_is_the_study_of_one_process(cluster, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'fedwatt[tune]'")

    def silent(label: str, wanted: int, study: Tuned) -> None: ...

    here = tune(STUDY, tmp_path / "here", trials=6, on_trial=silent)
    present = tune(STUDY, tmp_path / "there", trials=6, on_trial=silent, ray=cluster.address)
    assert present == here
    for file in ("best.toml", "tuning.json"):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes()


def waits(cell: int, shared: str, folder: Path) -> None:
    """Say where and as which process it works, then wait to be allowed to finish."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    (Path(shared) / f"{cell}-{os.getpid()}").write_text(node)
    deadline = time.monotonic() + 50
    while not (Path(shared) / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    square(cell, None, folder)


@on_ray
def test_the_cells_of_a_machine_that_dies_are_done_on_another(cluster, tmp_path: Path) -> None:
    (signs := tmp_path / "signs").mkdir()
    head = cluster.head_node
    other = next(iter(cluster.worker_nodes))
    killed: list[Path] = []

    def kill() -> None:
        # Both machines are at work: one of them goes, and with it whatever it had done.
        while not killed:
            at_work = {path.read_text(): path for path in signs.iterdir()}
            if len(at_work) == 2 and all(at_work):
                killed.append(at_work[other.node_id])
                cluster.remove_node(other, allow_graceful=False)
            time.sleep(0.05)
        (signs / "go").touch()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    paths = run_cells(CELLS, waits, tmp_path / "there", shared=str(signs), ray=cluster.address)
    thread.join()
    assert answers(paths) == answers(run_cells(CELLS, square, tmp_path / "here"))
    for name, path in paths.items():
        for file in ("cell.txt", "deep/answer.json"):
            assert (path / file).read_bytes() == (tmp_path / "here" / name / file).read_bytes()
    lost = killed[0].name.partition("-")[0]
    tries = sorted(path.read_text() for path in signs.glob(f"{lost}-*"))
    assert tries == sorted([head.node_id, other.node_id])


@on_ray
def test_an_error_of_the_work_is_raised_as_it_is(cluster, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Three is too much"):
        run_cells(CELLS, fails_at_three, tmp_path, ray=cluster.address)
    assert not (tmp_path / "cell-3").exists()


def test_no_cluster_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedwatt[cluster]'")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(SettingError, match=r"No Ray cluster answers at '127\.0\.0\.1:1'"):
        run_cells(CELLS, square, tmp_path, ray="127.0.0.1:1")


def _own_method(name: str, shared: None, folder: Path) -> None:
    (folder / "rules.txt").write_text(get(name).composition)


def test_code_of_ones_own_travels_with_a_task(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = (EXAMPLES / "sam.py").read_bytes()
    files = _task(
        _own_method, "./elsewhere/sam.py:sam", None, versions(), {"./elsewhere/sam.py": code}
    )
    assert files["rules.txt"] == "SharpnessAware → Average".encode()
