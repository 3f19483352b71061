"""The reproduction: printed tables, cells, caching, controls, verdicts and its command."""

import json
from dataclasses import replace
from math import inf, isnan
from pathlib import Path
from shutil import copytree
from threading import Event, Thread

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.data import DataSettings, synthetic_fleet
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.federation import Federation, Training
from fedwatt.files import exclusively
from fedwatt.methods import get
from fedwatt.studies.ranges import ranges_of
from reproduction.catalogue import STUDIES, select
from reproduction.cell import Cell, key_of, run_config
from reproduction.claims import verdicts
from reproduction.data import Sources, find_sources
from reproduction.judges import NOT_TESTABLE
from reproduction.lab import Lab
from reproduction.markdown import write_markdown
from reproduction.order import all_cells, grouped
from reproduction.page import LabView, write_page
from reproduction.paired import holm, paired
from reproduction.paper import names, printed
from reproduction.record import read_records, same_training
from reproduction.recorded_setting import setting_of
from reproduction.scale import SCALES
from reproduction.settle import latin, mean_pull, prerequisites, settled
from reproduction.stepscale import step_scale
from reproduction.study import METHODS, setting_for
from reproduction.train import pooled_client, train_cells

TINY = replace(
    SCALES["smoke"], rounds=2, synthetic_trips=4, synthetic_stride=20, trials=2, tuning_rounds=1
)


class Counting:
    """An observer that remembers which cells were trained."""

    def __init__(self) -> None:
        self.trained: list[Cell] = []

    def say(self, text: str) -> None: ...

    def round_done(self, done: int, rounds: int) -> None: ...

    def cell_begins(self, cell: Cell) -> None:
        self.trained.append(cell)

    def cell_ends(self, cell: Cell, record) -> None: ...


def test_every_printed_table_can_be_read() -> None:
    assert len(names()) == 26
    for name in names():
        table = printed(name)
        assert table.label and table.caption and table.dataset
        for row in table.rows.values():
            assert len(row) == len(table.columns)


def test_printed_numbers_are_the_papers() -> None:
    main = printed("main")
    assert str(main.entry("fo-ri-fedavg", "VED RMSE")) == "41.92 ± 0.22"
    assert main.entry("fedavg", "eVED RMSE").std == 0.35
    assert printed("thresholds").entry("fedavg", "VED 45").mean == inf
    assert printed("scaling").entry("moon", "200 eVED").mean == 79.9216
    assert printed("probe-sensitivity").entry("M=10 m=100 B=128 R=1", "VED overhead").mean == 18.69
    assert main.entry("fedavg", "no such column") is None
    with pytest.raises(SettingError, match="Unknown table"):
        printed("mian")


def test_tables_whose_numbers_contradict_others_say_so() -> None:
    assert any("estimated" in note for note in printed("scaling").notes)
    for name in ("main", "thresholds", "round-time", "components", "churn-drift"):
        assert printed(name).notes, name


def test_studies_stand_beside_every_printed_table() -> None:
    beside = [name for study in STUDIES.values() for name in study.printed]
    assert sorted(set(beside)) == names()


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_cell_of_every_study_can_be_configured(scale) -> None:
    setting = setting_for(scale, Sources())
    cells = all_cells([c for s in STUDIES.values() for c in s.cells(setting)], scale)
    assert len(cells) > 300
    keys = {key_of(cell, scale) for cell in cells if not cell.follow}
    assert len(keys) == sum(not cell.follow for cell in cells)
    for cell in cells:
        run_config(replace(cell, follow=""), scale)


def test_a_default_that_is_written_out_is_the_same_cell() -> None:
    plain = Cell(dataset="synthetic", method="fo-ri-fedavg")
    scale = SCALES["paper"]
    assert key_of(plain.with_settings({"alpha": 0.8, "rate": 0.05}), scale) == key_of(plain, scale)
    for other in (
        plain.with_settings({"alpha": 0.7}),
        replace(plain, p_leave=0.1, p_join=0.1),
        replace(plain, vehicles=50),
        replace(plain, noisy=0.3),
    ):
        assert key_of(other, scale) != key_of(plain, scale)
    assert key_of(plain, SCALES["small"]) != key_of(plain, scale)


def test_studies_are_chosen_in_the_papers_order() -> None:
    assert [s.name for s in select(["seeds", "main"])] == ["main", "seeds"]
    assert len(select(["all"])) == len(STUDIES) == 30
    with pytest.raises(SettingError, match="Did you mean 'alpha'"):
        select(["alhpa"])


def test_tuning_gives_every_method_as_many_trials_at_the_same_rates() -> None:
    scale = SCALES["paper"]
    rates = set()
    for method in METHODS:
        found = prerequisites(Cell(dataset="ved", method=method, follow="tuned"), scale)
        assert len(found) == scale.trials
        assert found[0].settings == ()
        rates.add(tuple(dict(cell.settings)["rate"] for cell in found[1:]))
    assert len(rates) == 1
    ranges = ranges_of(get("fo-ri-fedavg"))
    for values in latin("fo-ri-fedavg", ranges, 5):
        assert all(value in ranges[name] for name, value in values.items())


def test_paired_differences_and_their_correction() -> None:
    same = paired({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert (same.difference.mean, same.p) == (0.0, 1.0)
    assert isnan(paired({1: 2.0}, {1: 1.0}).p)
    # Differences 0 and 2: t = 1/(√2/√2) = 1 with one degree of freedom, p = 1 - (2/π)·atan(1)
    p = paired({1: 2.0, 2: 2.0}, {1: 2.0, 2: 0.0}).p
    assert p == pytest.approx(0.5, abs=1e-9)
    # Equal differences have no spread; three equal signs come by chance in one case of four.
    assert paired({1: 20, 2: 25, 3: 20}, {1: 25, 2: 30, 3: 25}).p == 0.25
    corrected = holm([0.5, float("nan"), 0.02])
    assert corrected == [1.0, pytest.approx(float("nan"), nan_ok=True), 0.06]


@pytest.fixture(scope="module")
def small_fleet():
    return synthetic_fleet(3, trips=4, settings=DataSettings(stride=20, evaluation_stride=60))


def test_step_scale_of_a_constant_preconditioner_is_that_constant(small_fleet) -> None:
    federation = Federation(small_fleet, training=Training(rounds=1, participation=1.0, batch=16))
    start, _ = federation.start(get("fedavg"))
    half = get("fo-fedavg", p_min=0.5, p_max=0.5)
    found = step_scale(federation, half, {0: start.weights})
    assert found == pytest.approx({"length": 0.5, "coordinate": 0.5}, rel=1e-5)  # float32
    fractional = step_scale(federation, get("fo-fedavg"), {0: start.weights})
    assert 0.2 <= fractional["coordinate"] <= fractional["length"] < 0.7


def test_pooling_keeps_every_window_and_label(small_fleet) -> None:
    pooled = pooled_client(small_fleet.clients)
    assert len(pooled.ends["train"]) == small_fleet.windows("train")
    last = small_fleet.clients[-1]
    end = pooled.ends["train"][-1]
    assert np.array_equal(pooled.series[end], last.series[last.ends["train"][-1]])
    assert pooled.labels["test"][-1] == last.labels["test"][-1]


def test_one_vehicle_alone_is_a_federation_of_one(tmp_path) -> None:
    alone = Cell(dataset="synthetic", method="fedavg", vehicles=1, participation=1.0, work="local")
    lab = Lab(TINY, tmp_path, device="cpu")
    lab.run([alone, replace(alone, work="federated")], Counting())
    own, federated = lab.get(alone), lab.get(replace(alone, work="federated"))
    assert own.final("test_rmse") == federated.final("test_rmse")


@pytest.mark.parametrize("work", ["local", "pooled", "federated"])
def test_a_control_that_diverges_is_told_as_diverged(tmp_path, work: str) -> None:
    wild = Cell(dataset="synthetic", method="fedavg", vehicles=2, participation=1.0, work=work)
    wild = wild.with_settings({"rate": 1e4})
    lab = Lab(TINY, tmp_path, device="cpu")
    lab.run([wild], Counting())
    assert set(lab.get(wild).diverged) == set(TINY.seeds)
    assert lab.get(wild).final("test_rmse") == {}


def cells_of_a_run() -> list[Cell]:
    fo = Cell(dataset="synthetic", method="fo-fedavg", vehicles=3, participation=1.0)
    ri = replace(fo, method="ri-fedavg")
    return [
        fo,
        replace(fo, method="fedavg", follow="matched rate"),
        replace(fo, method="fedprox", follow="matched pull"),
        ri,
        replace(fo, method="fedavg", follow="tuned"),
        replace(fo, method="fedavg", work="pooled"),
    ]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    made = Lab(TINY, tmp_path_factory.mktemp("lab"), device="cpu")
    made.run(cells_of_a_run(), Counting())
    return made


def test_controls_take_their_settings_from_what_they_match(lab) -> None:
    fo, rate, pull, ri, *_ = cells_of_a_run()
    length = lab.get(fo).facts["step_scale"]["length"]
    assert dict(lab.get(rate).cell.settings)["rate"] == float(f"{0.05 * length:.4g}")
    assert dict(lab.get(pull).cell.settings)["mu"] == float(f"{mean_pull(lab.get(ri)):.4g}")


def test_the_best_trial_is_the_one_with_the_lowest_validation_error(lab) -> None:
    tuned = cells_of_a_run()[4]
    trials = [lab.get(cell) for cell in prerequisites(tuned, TINY)]
    scores = [np.mean(list(t.final("validation_rmse").values())) for t in trials]
    best = trials[int(np.argmin(scores))]
    assert settled(tuned, trials).settings == best.cell.settings


def test_running_again_gives_the_same_bytes(lab, tmp_path) -> None:
    again = Lab(TINY, tmp_path, device="cpu")
    again.run(cells_of_a_run(), Counting())
    keys = sorted(path.name for path in lab.cells.iterdir())
    assert keys == sorted(path.name for path in again.cells.iterdir())
    for key in keys:
        for file in ("cell.json", "rounds.parquet", "vehicles.parquet"):
            assert (lab.cells / key / file).read_bytes() == (again.cells / key / file).read_bytes()


def test_cells_in_one_stack_reach_what_each_reaches_alone(lab) -> None:
    fo = cells_of_a_run()[0]
    slow = fo.with_settings({"rate": 0.01})
    small = replace(fo, method="fedavg")
    assert grouped([fo, small, slow, replace(fo, purpose="time")]) == [
        [fo, slow],
        [small],
        [replace(fo, purpose="time")],
    ]
    fleet = lab.fleet(fo)
    both = train_cells([fo, slow], TINY, fleet, "cpu", lambda done, rounds: None)
    alone = lab.get(fo)
    assert both[0].rounds["test_rmse"] == pytest.approx(alone.rounds["test_rmse"], rel=1e-4)
    assert both[1].final("test_rmse") != both[0].final("test_rmse")
    assert both[0].facts["step_scale"] == pytest.approx(alone.facts["step_scale"], rel=1e-3)


def test_what_has_run_is_not_run_again(lab) -> None:
    observer = Counting()
    Lab(TINY, lab.out, device="cpu").run(cells_of_a_run(), observer)
    assert observer.trained == []


def test_compact_records_are_taken_up_elsewhere(lab, tmp_path) -> None:
    lab.records = tmp_path / "records"
    lab.save()
    found = read_records(lab.records)
    fo = cells_of_a_run()[0]
    own, kept = lab.get(fo), found[key_of(fo, TINY)]
    assert kept.cell == own.cell and kept.facts == own.facts
    assert np.allclose(kept.rounds["test_rmse"], own.rounds["test_rmse"], rtol=1e-6)  # float32
    observer = Counting()
    elsewhere = Lab(TINY, tmp_path / "elsewhere", device="cpu", records=lab.records)
    elsewhere.run(cells_of_a_run(), observer)
    assert observer.trained == []
    with pytest.raises(RunError, match="of the scale 'smoke'"):
        Lab(SCALES["paper"], tmp_path, records=lab.records)


def holding(lab: Lab, out: Path, key: str, records: Path, **facts: str) -> Lab:
    """A lab in `out` that has one cell of another, perhaps with other facts."""
    own = copytree(lab.cells / key, out / "cells" / key) / "cell.json"
    about = json.loads(own.read_text())
    own.write_text(json.dumps(about | {"facts": about["facts"] | facts}))
    return Lab(lab.scale, out, device="cpu", records=records)


def test_labs_that_share_records_keep_what_the_other_added(lab, tmp_path) -> None:
    records, keys = tmp_path / "records", sorted(lab._known)
    both = [holding(lab, tmp_path / key, key, records) for key in keys[:2]]
    # Both opened the folder when it was empty; whoever saves last must not be alone in it.
    for own, method in zip(both, ("fedavg", "moon"), strict=True):
        own.setting = {"methods": [method]}
        own.save()
    assert sorted(read_records(records)) == keys[:2]
    third = holding(lab, tmp_path / "three", keys[2], records)
    assert third.setting == {"methods": ["fedavg", "moon"]}
    third.setting = {}
    third.save()
    assert Lab(TINY, tmp_path / "four", records=records).setting == {"methods": ["fedavg", "moon"]}


def test_the_newest_record_of_a_cell_stays(lab, tmp_path) -> None:
    records, (one, two, *_) = tmp_path / "records", sorted(lab._known)

    def made_by(key: str) -> str:
        return read_records(records)[key].facts["device"]

    holding(lab, tmp_path / "a", one, records, device="first").save()
    waiting = holding(lab, tmp_path / "b", two, records, device="first")
    again = holding(lab, tmp_path / "c", one, records, device="second")
    again.save()
    assert made_by(one) == "second"  # what is in a lab's own folder is newer than the records
    waiting.save()
    assert made_by(one) == "second"  # what it only read from the records is not
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
    records, key = tmp_path / "records", min(lab._known)
    small = Lab(SCALES["small"], tmp_path / "small", records=records)
    small._known[key] = lab._known[key]
    holding(lab, tmp_path / "a", key, records).save()
    with pytest.raises(RunError, match="of the scale 'smoke'"):
        small.save()
    assert list(read_records(records)) == [key]


def test_records_are_written_by_one_at_a_time(lab, tmp_path) -> None:
    records, key = tmp_path / "records", min(lab._known)
    own, done = holding(lab, tmp_path / "a", key, records), Event()
    thread = Thread(target=lambda: (own.save(), done.set()))
    with exclusively(records):
        thread.start()
        assert not done.wait(0.3)
        assert not (records / "cells.json").exists()
    assert done.wait(30)
    thread.join()
    assert list(read_records(records)) == [key]


def test_other_telemetry_is_trained_on_anew(lab) -> None:
    fo = cells_of_a_run()[0]
    file = lab.cells / key_of(fo, TINY) / "cell.json"
    text = file.read_text(encoding="utf-8")
    about = json.loads(text)
    about["facts"]["fleet"]["hash"] = "of another fleet"
    file.write_text(json.dumps(about), encoding="utf-8")
    observer = Counting()
    Lab(TINY, lab.out, device="cpu").run([fo], observer)
    assert observer.trained == [fo]


def test_studies_that_have_not_run_say_so(lab, tmp_path) -> None:
    view = LabView(setting_for(TINY, Sources()), lab)
    assert {verdict.outcome for verdict in verdicts(view)} == {NOT_TESTABLE}
    assert {v.claim for v in verdicts(view)} == {f"C{number}" for number in range(1, 8)}
    page = write_page(lab, view.setting, select(["main", "scaling"]), tmp_path / "report.html")
    assert page.read_text(encoding="utf-8").count("not run") > 50


def test_the_page_for_the_documentation_is_written_from_records(lab, tmp_path) -> None:
    assert setting_of(lab).ved == ("synthetic",)
    text = write_markdown(lab, tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "Smoke scale" in text and "three pure EVs" not in text  # none is on the page
    assert "0.653" in text  # Γ(1.2)^5, where the preconditioner is 1
    assert "0.354" in text  # 1/(2√2)


def test_the_command_lists_plans_and_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDWATT_DATA", str(tmp_path / "none"))
    run = CliRunner().invoke
    listed = run(app, ["reproduce", "--list"])
    assert listed.exit_code == 0 and "tab:bev_main_results" in listed.output.replace("\n", "")
    out = ["--out", str(tmp_path / "out"), "--dataset", "synthetic"]
    planned = run(app, ["reproduce", "main", "--plan", *out], env={"COLUMNS": "120"})
    assert planned.exit_code == 0 and "44" in planned.output, planned.output
    studies = ["seeds", "latency"]
    done = run(app, ["reproduce", *studies, *out])
    assert done.exit_code == 0, done.output
    assert "[3/3]" in done.output
    page = (tmp_path / "out" / "smoke" / "report.html").read_text(encoding="utf-8")
    assert "energy simulated; seeds 1, 2" in page
    again = run(app, ["reproduce", *studies, *out])
    assert "[1/" not in again.output


def test_data_folders_are_told_apart(tmp_path) -> None:
    from fedwatt.data import synthetic_vehicles
    from fedwatt.data.store import write_fleet

    write_fleet(tmp_path / "stored", synthetic_vehicles(1, trips=3), "made up")
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("EV_PHEV.parquet", "HEV_ICE_speed.parquet", "eVED_171101_week.csv"):
        (raw / name).touch()
    found = find_sources([tmp_path / "stored", raw])
    assert set(found.stored) == {"ved-electrified passenger"}
    assert set(found.raw) == {"ved", "traces", "eved"}
    assert found.has("ved") and found.has("eved") and found.has("synthetic")
    with pytest.raises(DataError, match="There is no data folder"):
        find_sources([Path("/no/such/folder")])
