"""Trackers with the real packages: what TensorBoard and MLflow read back of a run."""

from pathlib import Path

import pytest

from fedwatt.report.write import Reporter
from fedwatt.runs.config import from_toml
from fedwatt.runs.observers import Observers
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from fedwatt.runs.trackers import trackers
from tests.runs.test_execute import Silent
from tests.runs.test_observer import SMALL

pytestmark = pytest.mark.filterwarnings("default")


def run(out: Path, stop_after: int = 0, resume: bool = False) -> None:
    requests = "[track]\ntensorboard = true\nmlflow = true\n"
    config = from_toml(SMALL + requests)
    followed = Observers((Reporter(), *trackers(config, out), Silent(stop_after)))
    Run(config, out=out, observer=followed, resume=resume, checkpoint_seconds=0).execute()


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all trackers that was stopped after its first round and went on."""
    for package in ("tensorboard", "mlflow"):
        pytest.importorskip(package)
    out = tmp_path_factory.mktemp("tracked") / "run"
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("MLFLOW_TRACKING_URI", raising=False)
        with pytest.raises(KeyboardInterrupt):
            run(out, stop_after=1)
        run(out, resume=True)
    return out


def expected(run: Path) -> dict[int, float]:
    """Test RMSE of seed 1 by round."""
    rows = read_table(run, "rounds").to_pylist()
    return {row["round"]: row["test_rmse"] for row in rows if row["seed"] == 1 and row["round"]}


def test_tensorboard_shows_the_curves(tracked: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tracked / "tensorboard"
    curves = EventAccumulator(str(folder / "fedavg" / "seed-1")).Reload()
    result = {event.step: event.value for event in curves.Scalars("test_rmse")}
    assert result == pytest.approx(expected(tracked), rel=1e-6)
    text = EventAccumulator(str(folder / "vehicles")).Reload().Tensors("vehicles/text_summary")
    assert "car-003" in text[0].tensor_proto.string_val[0].decode()


def test_mlflow_shows_the_curves(tracked: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tracked / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedwatt")
    (only,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(only.info.run_id, "seed-1/test_rmse")
    assert {point.step: point.value for point in history} == pytest.approx(expected(tracked))
    assert only.info.status == "FINISHED"
    assert only.data.params["training.rounds"] == "2"
    names = {file.path for file in client.list_artifacts(only.info.run_id)}
    assert {"report.html", "vehicles.parquet", "model.safetensors", "figures"} <= names


def test_mlflow_goes_on_in_a_folder_with_an_apostrophe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "o'brien"
    out.mkdir()
    config = from_toml(SMALL + "[track]\nmlflow = true\n")
    began, goes_on = (trackers(config, out)[0] for _ in range(2))
    for events in (began, goes_on):
        events.on_start("fedavg", 0, 2)
    assert began.runs == goes_on.runs
