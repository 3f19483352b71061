"""Commands as a person types them."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedwatt import __version__
from fedwatt.cli import main
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS

ROOT = Path(__file__).parents[2]
SMALL = ("--seeds", "1,2", "--set", "data.stride=60", "--set", "model.hidden=[8, 4]")
TINY = [
    *("--plain", "--vehicles", "3", "--rounds", "2", "--participation", "1", *SMALL),
    *("--set", "fo-ri-fedavg.directions=2", "--set", "fo-ri-fedavg.points=4"),
]


Done = subprocess.CompletedProcess[str]


def in_a_process(*arguments: str, cwd: Path) -> Done:
    code = "from fedwatt.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd
    )


def fedwatt(*arguments: str, cwd: Path) -> Done:
    """Run a command in this process: loading torch takes longer than most commands."""
    out = StringIO()
    err = StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        patch.setattr(sys, "argv", ["fedwatt", *arguments])
        main()
    return Done(arguments, int(stopped.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def refused(folder: Path, monkeypatch, capfd):
    """The one sentence with which a command refuses; in this process, to save starting many."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["fedwatt", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        return one_sentence(capfd.readouterr().err)

    return run


def one_sentence(stderr: str) -> str:
    assert "Traceback" not in stderr
    message = stderr.strip()
    assert message.startswith("Error: ")
    assert "\n" not in message
    return message


def test_a_mistake_ends_with_status_2_and_no_traceback(folder: Path) -> None:
    done = in_a_process("run", "--rounds", "0", cwd=folder)
    assert done.returncode == 2
    assert "rounds must be at least 1" in one_sentence(done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a small fleet and a run on it."""
    path = tmp_path_factory.mktemp("cli")
    done = fedwatt(
        "data", "generate", "--out", "fleet", "--vehicles", "3", "--trips", "6", cwd=path
    )
    assert done.returncode == 0, done.stderr
    done = in_a_process("run", "--data", "fleet", *TINY, "--out", "run", cwd=path)
    assert done.returncode == 0, done.stderr
    assert "Report: run/report.html" in done.stdout
    assert re.search(r"FO-RI-FedAvg.*\d+\.\d ± \d+\.\d", done.stdout)
    return path


def test_a_run_leaves_all_that_was_promised(folder: Path) -> None:
    made = {path.name for path in (folder / "run").iterdir()}
    assert made >= {
        "config.toml",
        "rounds.parquet",
        "clients.parquet",
        "environment.json",
        "checkpoint",
        "model.safetensors",
        "report.html",
    }
    config = tomllib.loads((folder / "run" / "config.toml").read_text())
    assert config["data"]["stride"] == 60
    assert [m["name"] for m in config["method"]] == ["fedavg", "fo-ri-fedavg"]
    environment = json.loads((folder / "run" / "environment.json").read_text())
    streams = environment["hashes"]["participation"]
    assert streams["fedavg"] == streams["fo-ri-fedavg"]
    assert environment["fleet"]["labels"] == {"measured": 0, "simulated": 3}


def test_a_configuration_file_does_the_same(folder: Path) -> None:
    done = fedwatt("run", "run/config.toml", "--out", "again", cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("rounds.parquet", "model.safetensors"):
        assert (folder / "again" / name).read_bytes() == (folder / "run" / name).read_bytes()


def test_resuming_needs_only_the_folder(folder: Path) -> None:
    done = fedwatt("run", "--resume", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "continuing after round 2 of 2" in done.stdout


def test_a_run_says_where_it_looked_for_its_fleet(folder: Path, tmp_path: Path) -> None:
    done = fedwatt("run", "--resume", "--out", str(folder / "run"), cwd=tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path / 'fleet'} does not exist." in one_sentence(done.stderr)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_run_begins_or_goes_on(folder: Path) -> None:
    for run, resumes in ((folder / "run", True), (folder / "fresh", False)):
        make = ["make", "-n", "run", f"RUN={run}"]
        stdout = subprocess.run(make, capture_output=True, text=True, cwd=ROOT, check=True).stdout
        (line,) = [line for line in stdout.splitlines() if "fedwatt run" in line]
        assert ("--resume" in line) == resumes
        assert line.endswith(f"--out {run}")


def test_the_version_is_told(folder: Path) -> None:
    done = in_a_process("--version", cwd=folder)
    assert (done.returncode, done.stdout) == (0, f"fedwatt {__version__}\n")


def test_hills_that_nobody_shares_are_said_to_be_none(folder: Path) -> None:
    elevations = ("--set", "data.features=base, elevation")
    small = ("--data", "fleet", *SMALL, "--method", "fedavg", "--rounds", "1", "--no-baselines")
    small += ("--seeds", "1", "--set", "personalisation.enabled=false", *elevations)
    lonely = ("--set", "elevation.minimum_vehicles=4", "--out", "lonely hills")
    done = fedwatt("run", *small, *lonely, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "elevation map: nothing is published, because a node needs 4 vehicles" in done.stdout
    assert "with 3 vehicles none has as many; each vehicle has what it learns" in done.stdout
    assert "fedavg: training 1 round\n" in done.stdout
    shared = ("--set", "elevation.minimum_vehicles=2", "--out", "shared hills")
    done = fedwatt("run", *small, *shared, cwd=folder)
    assert done.returncode == 0, done.stderr
    nodes = json.loads((folder / "shared hills" / "environment.json").read_text())["elevation"]
    assert nodes["nodes"] > 0
    assert f"elevation map: {nodes['nodes']:,} nodes published, of 3 vehicles" in done.stdout


def test_fleets_are_described(folder: Path) -> None:
    done = fedwatt("data", "describe", "fleet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "car-001" in done.stdout
    assert "simulated" in done.stdout
    assert "Channels: speed_mps, " in done.stdout


def test_methods_are_listed(folder: Path, refused) -> None:
    done = fedwatt("list", cwd=folder)
    assert done.returncode == 0
    for word in ("fedprox", "fo-ri-fedavg", "energy-per-km", "eved"):
        assert word in done.stdout
    listed = " ".join(done.stdout.split())
    for kind, names in (("local rule", LOCAL_RULES), ("defence", DEFENCES), ("server", SERVERS)):
        assert f"{kind} {', '.join(names)}" in listed
    done = fedwatt("list", "fo-ri-fedavg", cwd=folder)
    printed = " ".join(done.stdout.split())
    for word in ("RoughnessProximal + Fractional", "beta_kappa"):
        assert word in printed
    assert "rate training.learning_rate; tuned from 0.001 to 0.1, log" in printed
    assert "alpha 0.8; tuned from 0.3 to 1. α, fractional order; 1 is plain SGD" in printed
    assert "p_min 0.2. smallest factor by which a weight's step is scaled" in printed
    assert "Did you mean 'fedprox'?" in refused("list", "fedporx")


def test_reports_are_written_again(folder: Path, refused) -> None:
    (folder / "run" / "report.html").unlink()
    done = fedwatt("report", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "report.html").stat().st_size > 10_000
    assert "has no" in refused("report", "fleet")


def test_ctrl_c_stops_cleanly_and_can_be_continued(folder: Path) -> None:
    arguments = ["run", "--data", "fleet", *TINY, "--rounds", "2000", "--out", "long"]
    code = "from fedwatt.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    while "round 200/" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continue with: fedwatt run --resume --out long" in " ".join(stderr.split())
    (checkpoint,) = (folder / "long" / "checkpoint" / "fedavg").iterdir()
    assert int(checkpoint.name.removeprefix("round-")) >= 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.toml"], "There is no configuration file 'nowhere.toml'"),
        (["run", "--data", "nowhere"], "nowhere"),
        (["run", "--data", "fleet", "--vehicles", "50"], "has 3 vehicles, not the 50 asked for"),
        (["run", "--data", "nowhere"], "'nowhere' is a relative path: it starts from the folder"),
        (["run", "--method", "fedporx"], "Did you mean 'fedprox'?"),
        (["run", "--method", "fedavg,fedprox"], "each: --method fedavg --method fedprox."),
        (["run", "--method", "fedavg+"], "Method 'fedavg+': a name is missing"),
        (["run", "--set", "scaffold.alpha=1"], "wanted: --method fedavg --method fo-ri-fedavg --m"),
        (["run", "--rounds", "0"], "Training(rounds=0): rounds must be at least 1."),
        (["run", "--set", "trainig.learning_rate=1"], "Did you mean 'training'?"),
        (
            ["run", "--set", "training.learning_rate=fast"],
            "training.learning_rate must be a number, got 'fast'.",
        ),
        (["run", "--set", "fo-ri-fedavg.alpha=1.4"], "alpha must be in (0, 1]."),
        (["run", "--device", "tpu"], "device must be 'auto', 'cpu' or 'cuda'."),
        (["run", "--out", "run"], "already holds a run. Continue it with --resume"),
        (["run", "--out", "fleet"], "fleet is not empty. Choose another --out or remove it first."),
        (["run", "--out", "flat.toml"], "flat.toml is a file, and --out names a folder."),
        (["run", "--resume", "--out", "new"], "new holds no run, so there is nothing to continue."),
        (["run", "--resume", "--out", "fleet"], "Without --resume a new run begins"),
        (["run", "--resume", "--out", "run", "--rounds", "3"], ": training.rounds 2 → 3."),
        (["data", "describe", "nowhere"], "nowhere"),
        (["data", "generate", "--out", "run"], "not empty"),
        (["report", "nowhere"], "nowhere"),
        (["run", "--resume"], "--resume needs --out"),
        (["run", "--data", "[/bold]nowhere"], "[/bold]nowhere"),
        (["run", "single.toml"], "written as [[method]] tables, in double brackets."),
        (["run", "flat.toml", "--rounds", "3"], "write its settings below [training]."),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, refused, arguments, message: str) -> None:
    (folder / "single.toml").write_text("[method]\nname = 'fedavg'\n")
    (folder / "flat.toml").write_text("training = 3\n")
    before = sorted(folder.rglob("*"))
    assert message in refused(*arguments)
    assert sorted(folder.rglob("*")) == before  # nothing was written


def broken_fleet(folder: Path, name: str, **change) -> None:
    """The small fleet with one thing wrong with its first vehicle."""
    shutil.copytree(folder / "fleet", folder / name)
    (vehicle,) = [p for p in (folder / name).iterdir() if p.name == "car-001"]
    trips = pq.read_table(vehicle / "trips.parquet")
    record = json.loads((vehicle / "vehicle.json").read_text())
    if change.get("keep"):
        record["trips"] = record["trips"][: change["keep"]]
        trips = trips.slice(0, sum(trip["seconds"] for trip in record["trips"]))
    if change.get("spoil"):
        column = trips[change["spoil"]].to_pylist()
        column[5] = float("nan")
        place = trips.schema.get_field_index(change["spoil"])
        trips = trips.set_column(place, change["spoil"], pa.array(column))
    (vehicle / "vehicle.json").write_text(json.dumps(record))
    pq.write_table(trips, vehicle / "trips.parquet")


def test_bad_fleets_are_one_sentence(folder: Path, refused) -> None:
    (folder / "empty").mkdir()
    assert "empty is not a fleet folder: it has no fleet.json." in refused("run", "--data", "empty")
    broken_fleet(folder, "lonely", keep=1)
    assert (
        "Vehicle 'car-001' has 1 trips, 1 of them at least 60 s long; training, validation and "
        "test need one each" in refused("run", "--data", "lonely")
    )
    broken_fleet(folder, "holey", spoil="speed_mps")
    assert re.search(
        r"Vehicle 'car-001', trip 'trip-001': channel 'speed_mps' is not a finite number in 1 of "
        r"\d+ samples, first at second 5\.",
        refused("run", "--plain", "--data", "holey"),
    )
    broken_fleet(folder, "torn")
    table = folder / "torn" / "car-001" / "trips.parquet"
    table.write_bytes(table.read_bytes()[:500])
    message = refused("run", "--data", "torn")
    assert message.startswith("Error: torn/car-001/trips.parquet is damaged: ")
    assert message.endswith("Import or generate the fleet again.")
