"""The examples, each used as its author would: from Python, and on the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedwatt import DataSettings, Run, Training, load, load_fleet
from fedwatt.cli import app
from fedwatt.cli.options import configuration
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.errors import DataError
from fedwatt.methods import get
from fedwatt.runs.config import from_tables, read_config
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import read_vehicle, write_fleet
from tests.examples import EXAMPLES
from tests.runs.killing import kill_after

SAM = f"{EXAMPLES}/sam.py:sam"
FEDAVGM = f"{EXAMPLES}/fedavgm.py:fedavgm"
CONV = f"{EXAMPLES}/conv.py:Conv"
NEXT_MINUTE = f"{EXAMPLES}/next_minute.py:next_minute"
SETTINGS = {"window": 20, "stride": 31, "evaluation_stride": 31}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "fleet"
    write_fleet(folder, synthetic_vehicles(3, seed=2, trips=5), "synthetic")
    return folder


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 40


def test_the_documentation_quotes_them_as_they_are() -> None:
    text = (EXAMPLES.parent / "docs" / "extending.md").read_text(encoding="utf-8")
    quoted = re.findall(r"<!-- examples/(\w+\.py) -->\n```py\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in quoted] == ["sam.py", "conv.py"]
    for name, code in quoted:
        assert code == (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("method", "model", "target"),
    [
        (SAM, "mlp", "energy"),
        (FEDAVGM, "mlp", "energy"),
        ("fedavg", CONV, "energy"),
        ("fedavg", "mlp", NEXT_MINUTE),
    ],
    ids=["sam", "fedavgm", "conv", "next_minute"],
)
def test_from_python(method: str, model: str, target: str, stored: Path, tmp_path: Path) -> None:
    fleet = load_fleet(stored, DataSettings(**SETTINGS, target=target))
    run = Run.on(fleet, model, training=Training(rounds=2))
    trained = run.train(method)
    fedavg = run.train("fedavg")
    assert torch.equal(trained.state.weights, fedavg.state.weights) == (method == "fedavg")
    back = load(trained.save(tmp_path / "run"))
    predictions = back.predict(fleet)
    # Equal but for where weights lie in memory, which may change how a product is rounded.
    np.testing.assert_allclose(predictions["car-001"], trained.predict(fleet)["car-001"], rtol=1e-6)
    back.export(tmp_path / "model.onnx")
    file = EnergyModel(tmp_path / "model.onnx")
    client = fleet.clients[0]
    scaled = file.energies(client.series, client.ends["test"])
    np.testing.assert_allclose(
        client.energy_wh(scaled), predictions["car-001"], rtol=1e-4, atol=1e-2
    )


def test_fedavgm_is_what_fedwatt_has(stored: Path) -> None:
    run = Run.on(load_fleet(stored, DataSettings(**SETTINGS)), training=Training(rounds=3))
    outcome = run.train(get(FEDAVGM, beta=0.7))
    reference = run.train(get("fedavg@sgd", server_momentum=0.7))
    assert torch.equal(outcome.state.weights, reference.state.weights)


def test_the_next_minute_is_the_next_minute(stored: Path) -> None:
    vehicle = read_vehicle(stored / "car-001")
    now = load_fleet(stored, DataSettings(window=60, stride=1, label_scaling="fleet"))
    then = load_fleet(
        stored, DataSettings(window=60, stride=1, label_scaling="fleet", target=NEXT_MINUTE)
    )
    first = next(trip for trip in vehicle.trips if trip.name == then.clients[0].trips["train"][0])
    # Two seconds lie between: acceleration looks that far ahead.
    expected = first.channels["energy_wh"][62:122].sum()
    client = then.clients[0]
    assert client.energy_wh(client.labels["train"][:1])[0] == pytest.approx(expected, rel=1e-5)
    assert len(client.labels["train"]) < len(now.clients[0].labels["train"])


PROGRAM = """
import sys
from pathlib import Path
from fedwatt.runs.config import read_config, from_tables
from fedwatt.runs.run import Run
from fedwatt.runs.observers import OnRound

def say(state, record):
    print(state.round, flush=True)

config = from_tables(read_config(Path(sys.argv[1])), trusted=True)
Run(config, out=Path(sys.argv[2]), observer=OnRound(say), checkpoint_seconds=0).execute()
"""

CONFIG = f"""
seeds = [1]
[fleet]
data = "FLEET"
[data]
window = 20
stride = 31
evaluation_stride = 31
target = "{NEXT_MINUTE}"
[model]
name = "{CONV}"
[training]
rounds = 3
[[method]]
name = "fedavg"
[[method]]
name = "{SAM}"
rho = 0.01
[[method]]
name = "{FEDAVGM}"
"""

TRUST = [word for name in (CONV, NEXT_MINUTE, SAM, FEDAVGM) for word in ("--trust", name)]


def test_on_the_command_line(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(CONFIG.replace("FLEET", str(stored)))
    # Killed in the second round of the second method, resumed, against one that was left alone.
    kill_after(5, PROGRAM, str(tmp_path / "own.toml"), str(tmp_path / "killed"))
    done = CliRunner().invoke(app, ["run", "--resume", "--out", "killed", *TRUST])
    assert done.exit_code == 0, done.output
    config = from_tables(read_config(Path("killed/config.toml")))
    Run(config, out=Path("whole")).execute()
    killed = load("killed", method="sam")
    alone = load("whole", method="sam")
    assert torch.equal(killed.state.weights, alone.state.weights)
    assert Path("killed/report.html").stat().st_size > 10_000
    # For a vehicle: telemetry in, Wh of the next minute out.
    vehicle = read_vehicle(stored / "car-002")
    args = ["export", "killed", "--method", "sam", "--out", "sam.onnx", "--vehicle"]
    exported = CliRunner().invoke(app, [*args, str(stored / "car-002")])
    assert exported.exit_code == 0, exported.output
    from fedwatt.windows.features import feature_names, trip_features

    trip = vehicle.trips[0]
    columns = trip_features(trip, feature_names("base"), "car-002")
    energies_wh = EnergyModel(Path("sam.onnx")).energies(columns, np.arange(19, trip.seconds))
    expected = killed.predict(trip, vehicle="car-002")
    np.testing.assert_allclose(energies_wh, expected, rtol=1e-4, atol=1e-2)
    with pytest.raises(DataError, match="predicts next_minute of single windows, which do not add"):
        EnergyModel(Path("sam.onnx")).refuse_unless_telemetry()


def test_changed_code_is_said_and_stops_a_resumed_run(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("sam.py")
    file.write_text((EXAMPLES / "sam.py").read_text(encoding="utf-8"))
    args = ["run", "--data", str(stored), "--method", "./sam.py:sam", "--rounds", "1"]
    args += ["--seeds", "1", *(f"--set=data.{name}={value}" for name, value in SETTINGS.items())]
    wrong = CliRunner().invoke(app, [*args, "--method", "./sam.py:sma", "--out", "none"])
    assert "defines no 'sma'" in str(wrong.exception)
    assert not Path("none").exists()
    fleet = load_fleet(stored, DataSettings(**SETTINGS))
    Run.on(fleet, training=Training(rounds=1)).train("./sam.py:sam").save("run")
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    file.write_text(file.read_text(encoding="utf-8") + "# better\n")
    stopped = CliRunner().invoke(app, ["run", "--resume", "--out", "run"])
    assert "The code of './sam.py:sam' has changed since the run in run was begun" in str(
        stopped.exception
    )
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    # A new run from the same configuration begins, and says it.
    again = configuration(
        Path("run/config.toml"), Path("new"), resume=False, methods=None, options={}, assignments=[]
    )
    assert again.methods[0].label == "sam"
    words = " ".join(capsys.readouterr().err.split())
    assert "The code of './sam.py:sam' has changed since run/config.toml was written." in words


def test_a_reader_of_ones_own(tmp_path: Path) -> None:
    seconds = np.arange(300)
    for bus in (1, 2):
        rides = [
            {
                "ride": f"ride-{k}",
                "t": seconds.tolist(),
                "kmh": (30 + 10 * np.sin(seconds / 9 + k)).tolist(),
                "kw": (20 + 5 * np.cos(seconds / 7)).tolist(),
            }
            for k in range(4)
        ]
        day = json.dumps({"bus": f"bus-{bus}", "rides": rides})
        (tmp_path / f"day-{bus}.json").write_text(day)
    out = tmp_path / "fleet"
    args = ["data", "import", f"{EXAMPLES}/reader.py:read", "--out", str(out)]
    done = CliRunner().invoke(app, [*args, *(str(tmp_path / f"day-{bus}.json") for bus in (1, 2))])
    assert done.exit_code == 0, done.output
    assert "8 trips kept; 0 dropped" in done.output
    assert [v.name for v in map(read_vehicle, sorted(out.glob("bus-*")))] == ["bus-1", "bus-2"]
