"""The lab: cells run once, and compact records go from folder to folder."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from threading import Event, Thread

import numpy as np
import pytest

from fedwatt.errors import RunError
from reproduction.cell import key_of
from reproduction.controls import baseline_cells
from reproduction.lab import Lab, exclusively
from reproduction.record import CORE_SECONDS, read_records, same_training
from reproduction.scale import SCALES
from reproduction.tuning import prerequisites
from tests.reproduction.small import TINY, Counting, cells_of_a_run


def test_running_again_gives_the_same_bytes(lab, tmp_path) -> None:
    again = Lab(TINY, tmp_path, device="cpu")
    again.run(cells_of_a_run(), Counting())
    keys = sorted(path.name for path in lab.cells.iterdir())
    assert keys == sorted(path.name for path in again.cells.iterdir())
    for key in keys:
        for file in ("rounds.parquet", "vehicles.parquet"):
            assert (lab.cells / key / file).read_bytes() == (again.cells / key / file).read_bytes()
        first, second = (read_records(own.cells / key)[key] for own in (lab, again))
        both = (record.facts | {CORE_SECONDS: 0} for record in (first, second))
        assert first.cell == second.cell and len({json.dumps(facts) for facts in both}) == 1


def test_what_has_run_is_not_run_again(lab) -> None:
    observer = Counting()
    Lab(TINY, lab.out, device="cpu").run(cells_of_a_run(), observer)
    assert observer.trained == []


def test_compact_records_are_taken_up_elsewhere(lab, tmp_path) -> None:
    lab.records = tmp_path / "records"
    lab.save()
    records = read_records(lab.records)
    fo = cells_of_a_run()[0]
    record = lab.get(fo)
    remaining = records[key_of(fo, TINY)]
    assert remaining.cell == record.cell and remaining.facts == record.facts
    assert np.allclose(
        remaining.rounds["test_rmse"], record.rounds["test_rmse"], rtol=1e-6
    )  # float32
    observer = Counting()
    elsewhere = Lab(TINY, tmp_path / "elsewhere", device="cpu", records=lab.records)
    elsewhere.run(cells_of_a_run(), observer)
    assert observer.trained == []
    with pytest.raises(RunError, match="of the scale 'smoke'"):
        Lab(SCALES["paper"], tmp_path, records=lab.records)


def holding(lab: Lab, out: Path, key: str, records: Path, **facts: str) -> Lab:
    """A lab in `out` that has one cell of another, perhaps with other facts."""
    changed_cell = copytree(lab.cells / key, out / "cells" / key) / "cells.json"
    content = json.loads(changed_cell.read_text())
    content["cells"][key]["facts"] |= facts
    changed_cell.write_text(json.dumps(content))
    return Lab(lab.scale, out, device="cpu", records=records)


def test_labs_that_share_records_keep_what_the_other_added(lab, tmp_path) -> None:
    records = tmp_path / "records"
    keys = sorted(lab._known)
    both = [holding(lab, tmp_path / key, key, records) for key in keys[:2]]
    # Both opened the folder when it was empty; whoever saves last must not be alone in it.
    for cell_name, method in zip(both, ("fedavg", "moon"), strict=True):
        cell_name.setting = {"methods": [method]}
        cell_name.save()
    assert sorted(read_records(records)) == keys[:2]
    third = holding(lab, tmp_path / "three", keys[2], records)
    assert third.setting == {"methods": ["fedavg", "moon"]}
    third.setting = {}
    third.save()
    assert Lab(TINY, tmp_path / "four", records=records).setting == {"methods": ["fedavg", "moon"]}


def test_the_newest_record_of_a_cell_stays(lab, tmp_path) -> None:
    records = tmp_path / "records"
    first, two, *_ = sorted(lab._known)

    def made_by(key: str) -> str:
        return read_records(records)[key].facts["device"]

    holding(lab, tmp_path / "a", first, records, device="first").save()
    waiting = holding(lab, tmp_path / "b", two, records, device="first")
    again = holding(lab, tmp_path / "c", first, records, device="second")
    again.save()
    assert made_by(first) == "second"  # what is in a lab's own folder is newer than the records
    waiting.save()
    assert made_by(first) == "second"  # what it only read from the records is not
    assert made_by(two) == "first"


def test_a_training_is_known_again_in_its_compact_record(lab, tmp_path) -> None:
    lab = Lab(TINY, lab.out, device="cpu", records=tmp_path / "records")
    lab.save()
    compact = read_records(lab.records)
    for key, record in lab._known.items():
        assert same_training(record, compact[key])
        later = replace(record, timing=record.timing | {"training": record.timing["training"] + 1})
        assert same_training(later, compact[key]) == (not len(record.timing["training"]))
        assert not same_training(replace(record, facts={}), compact[key])
    assert Lab(TINY, lab.out, device="cpu", records=lab.records)._own == set()


def test_a_folder_of_records_that_took_another_scale_meanwhile_is_refused(lab, tmp_path) -> None:
    records = tmp_path / "records"
    key = min(lab._known)
    other = Lab(SCALES["paper"], tmp_path / "paper", records=records)
    other._known[key] = lab._known[key]
    holding(lab, tmp_path / "a", key, records).save()
    with pytest.raises(RunError, match="of the scale 'smoke'"):
        other.save()
    assert list(read_records(records)) == [key]


def test_records_are_written_by_one_at_a_time(lab, tmp_path) -> None:
    records = tmp_path / "records"
    key = min(lab._known)
    held_lab = holding(lab, tmp_path / "a", key, records)
    done = Event()
    thread = Thread(target=lambda: (held_lab.save(), done.set()))
    with exclusively(records):
        thread.start()
        assert not done.wait(0.3)
        assert not (records / "cells.json").exists()
    assert done.wait(30)
    thread.join()
    assert list(read_records(records)) == [key]


def test_other_telemetry_is_trained_on_anew(lab) -> None:
    fo = cells_of_a_run()[0]
    file = lab.cells / key_of(fo, TINY) / "cells.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["cells"][key_of(fo, TINY)]["facts"]["fleet"]["hash"] = "of another fleet"
    file.write_text(json.dumps(content), encoding="utf-8")
    observer = Counting()
    Lab(TINY, lab.out, device="cpu").run([fo], observer)
    assert observer.trained == [fo]


def test_a_cell_may_follow_one_that_follows_others(lab) -> None:
    fo = cells_of_a_run()[0]
    again = Lab(TINY, lab.out, device="cpu")
    control = replace(fo, method="fedavg", follow="matched rate:own rate:fedavg")
    again.run([control], Counting())
    # FedAvg's rates, FO-FedAvg at the best of them, then FedAvg with steps as long as its.
    settlement = again.settled(control)
    followed = again.settled(replace(fo, follow="own rate:fedavg"))
    assert 0 < dict(settlement.settings)["learning_rate"] < dict(followed.settings)["learning_rate"]
    assert again.get(control) is not None


def test_a_record_of_all_seeds_serves_a_cell_of_some(lab, tmp_path) -> None:
    alone = replace(cells_of_a_run()[0], seeds=(2,))
    served = lab.get(alone)
    assert served.cell.seeds == (2,) and set(served.rounds["seed"]) == {2}
    other = Lab(TINY, tmp_path, device="cpu")
    other.run([alone], Counting())
    trained = other.get(alone)
    # Seeds do not touch each other: the same bits as in a stack of its own.
    for name in ("test_rmse", "drift_mean", "participants"):
        assert np.array_equal(served.rounds[name], trained.rounds[name], equal_nan=True)
    assert lab.get(replace(alone, seeds=(3,))) is None


def test_baselines_without_federation_are_tuned_as_fedavg_is() -> None:
    scale = SCALES["paper"]
    for dataset, count in (("ved", 30), ("ved-enriched", 4)):
        for baseline in baseline_cells(scale, dataset).values():
            trials = prerequisites(baseline, scale)
            federated = prerequisites(replace(baseline, work="federated"), scale)
            assert {trial.work for trial in trials} == {baseline.work} and len(trials) == count
            assert [replace(trial, work="federated") for trial in trials] == list(federated)


def test_one_at_a_time_is_inside_a_folder(tmp_path) -> None:
    arrived = Event()
    inside = Event()

    def other() -> None:
        arrived.set()
        with exclusively(tmp_path / "new"):
            inside.set()

    thread = Thread(target=other)
    with exclusively(tmp_path / "new"):
        thread.start()
        arrived.wait()
        assert not inside.wait(0.1)
        with exclusively(tmp_path / "another"):
            pass
    assert inside.wait(10)
    thread.join()


def test_an_error_inside_lets_the_next_one_in(tmp_path) -> None:
    with pytest.raises(ValueError), exclusively(tmp_path):
        raise ValueError
    with exclusively(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"Cannot write .*below"),
        exclusively(tmp_path / "file" / "below"),
    ):
        pass


def test_a_folder_that_cannot_be_locked_is_named(tmp_path, monkeypatch) -> None:
    def refuse(file, how) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(RunError, match="Function not implemented"), exclusively(tmp_path):
        pass
