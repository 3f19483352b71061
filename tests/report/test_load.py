import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedwatt.errors import RunError
from fedwatt.report.load import load_run, load_runs
from fedwatt.report.write import write_report
from tests.report.conftest import make_run


@pytest.fixture
def copy(run_folder, tmp_path):
    """A run folder that a test may damage."""
    return shutil.copytree(run_folder, tmp_path / "copy")


def test_methods_keep_their_order_and_fedavg_is_the_reference(tmp_path):
    run = load_run(make_run(tmp_path / "run", methods=("fo-fedavg", "fedavg")))
    assert run.methods == ("fo-fedavg", "fedavg")
    assert run.reference == "fedavg"


def test_first_method_is_the_reference_without_fedavg(tmp_path):
    run = load_run(make_run(tmp_path / "run", methods=("fedprox", "fo-fedavg")))
    assert run.reference == "fedprox"


@pytest.mark.parametrize(
    "name",
    [
        "config.toml",
        "environment.json",
        "rounds.parquet",
        "vehicles.parquet",
        "timing.parquet",
    ],
)
def test_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(RunError, match=f"has no {name}"):
        load_run(copy)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.toml", "seeds = [", "not valid TOML"),
        ("environment.json", "{", "not valid JSON"),
        ("environment.json", "[]", "must hold a JSON object"),
        ("rounds.parquet", "nonsense", "cannot be read"),
        ("vehicles.parquet", "", "cannot be read"),
    ],
)
def test_broken_file_is_named(copy, name, text, says):
    (copy / name).write_text(text)
    with pytest.raises(RunError, match=says) as caught:
        load_run(copy)
    assert name in str(caught.value)


def test_other_columns_are_refused(copy):
    pq.write_table(pa.table({"method": ["fedavg"]}), copy / "timing.parquet")
    with pytest.raises(RunError, match=r"timing\.parquet does not have the columns"):
        load_run(copy)


def test_run_without_rounds_is_refused(copy):
    table = pq.read_table(copy / "rounds.parquet")
    pq.write_table(table.slice(0, 0), copy / "rounds.parquet")
    with pytest.raises(RunError, match="has no rows"):
        load_run(copy)


def test_missing_folder_says_how_to_make_one(tmp_path):
    with pytest.raises(RunError, match="fedwatt run --out"):
        load_run(tmp_path / "nowhere")


def test_broken_run_leaves_no_report(copy):
    (copy / "timing.parquet").unlink()
    with pytest.raises(RunError):
        write_report(copy)
    assert not (copy / "report.html").exists()
    assert not (copy / "figures").exists()


def test_runs_together_name_what_they_share(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg", "fedprox"))
    second = make_run(tmp_path / "night", methods=("fedavg", "fo-fedavg"))
    run = load_runs([first, second])
    assert run.methods == ("fedavg (day)", "fedprox", "fedavg (night)", "fo-fedavg")
    assert [origin.name for origin in run.origins] == ["day", "night"]
    assert run.same_data
    counts = [len(load_run(folder).rounds["seed"]) for folder in (first, second)]
    assert len(run.rounds["seed"]) == sum(counts)


def test_runs_on_other_data_are_recognised(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(tmp_path / "night", methods=("fedprox",), data_hash="ffff")
    assert not load_runs([first, second]).same_data


@pytest.mark.parametrize(("name", "unit"), [("soc", "points"), ("next", "Wh")])
def test_runs_of_other_targets_are_refused(tmp_path, name, unit):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(tmp_path / "night", methods=("fedprox",))
    path = second / "environment.json"
    environment = json.loads(path.read_text(encoding="utf-8"))
    environment["fleet"]["target"] = {"name": name, "unit": unit}
    path.write_text(json.dumps(environment), encoding="utf-8")
    message = f"Run day predicts energy in Wh, run night {name} in {unit}:"
    with pytest.raises(RunError, match=f"{message}.* Report them separately"):
        load_runs([first, second])


def test_folders_of_one_name_are_told_apart(tmp_path):
    first = make_run(tmp_path / "a" / "run", methods=("fedavg",))
    second = make_run(tmp_path / "b" / "run", methods=("fedavg",))
    assert load_runs([first, second]).methods == (f"fedavg ({first})", f"fedavg ({second})")
    with pytest.raises(RunError, match="given twice"):
        load_runs([first, first])


def test_environment_is_kept(run_folder):
    environment = load_run(run_folder).origins[0].environment
    assert environment == json.loads((run_folder / "environment.json").read_text())
