"""Wrong files are refused, each with one clear sentence."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export, read_trained
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.errors import DataError, RunError, SettingError

from .toys import run_folder, trained


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="There is no model file"):
        EnergyModel(tmp_path / "none.onnx")


def test_a_wrong_file(tmp_path):
    file = tmp_path / "notes.onnx"
    file.write_text("shopping list")
    with pytest.raises(DataError, match="is not a whole ONNX model"):
        EnergyModel(file)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.9999])
def test_a_truncated_file(share, model, tmp_path):
    file = tmp_path / "half.onnx"
    complete = model.path.read_bytes()
    file.write_bytes(complete[: int(share * len(complete))])
    with pytest.raises(DataError, match=r"damaged, cut off|not one of fedwatt"):
        EnergyModel(file)


def test_an_onnx_model_of_somebody_else(tmp_path):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(made, tmp_path / "other.onnx")
    with pytest.raises(DataError, match="not one of fedwatt"):
        EnergyModel(tmp_path / "other.onnx")


def test_windows_of_another_shape(model):
    with pytest.raises(DataError, match=r"\[batch, 60, 8\]; got \[1, 60, 7\]"):
        model.energy(np.zeros((1, 60, 7)))


def test_a_stream_needs_a_vehicles_scaling(tmp_path):
    export(trained(), tmp_path / "plain.onnx")
    with pytest.raises(DataError, match="Export it with --vehicle"):
        EnergyPredictor(tmp_path / "plain.onnx")


def test_any_batch_gives_the_same_energies(model):
    windows = np.random.default_rng(0).uniform(0, 20, (33, 60, 8))
    together = model.energy(windows)
    one_by_one = [model.energy(windows[i : i + 1])[0] for i in range(33)]
    assert together == pytest.approx(one_by_one, rel=1e-6)


def test_the_card_says_what_the_model_is(model, vehicle):
    card = model.card
    assert card.features[0] == "speed" and card.units[0] == "m/s"
    assert (card.window, card.interval_s, card.method, card.output) == (60, 1.0, "fedavg", "Wh")
    assert card.vehicle == vehicle.name and len(card.run_hash) == 32 and card.library
    assert model.path.stat().st_size < 200_000


def test_a_run_is_read_back_as_it_was_written(tmp_path):
    trained_run = read_trained(run_folder(tmp_path / "run"))
    assert trained_run.method == "fedavg" and trained_run.seed == 1
    assert all(
        np.array_equal(trained_run.weights[n], part) for n, part in trained().weights.items()
    )


def test_what_is_wrong_with_a_run(tmp_path):
    with pytest.raises(RunError, match="is not a finished run"):
        read_trained(tmp_path)
    run = run_folder(tmp_path / "run")
    with pytest.raises(SettingError, match="Unknown method of this run 'fedporx'"):
        read_trained(run, method="fedporx")
    with pytest.raises(SettingError, match="no seed 7; it has 1"):
        read_trained(run, seed=7)
    (run / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match="is damaged"):
        read_trained(run)


@pytest.mark.parametrize(
    ("target", "adds_up"), [("energy", True), ("energy-from-soc", True), ("soc", False)]
)
def test_windows_of_energy_add_up_to_a_trip_wherever_it_is_from(target: str, adds_up: bool) -> None:
    card = SimpleNamespace(target=target, output="Wh", features=("speed",))
    model = SimpleNamespace(card=card, path="car.onnx")
    if adds_up:
        EnergyModel.refuse_unless_telemetry(model)  # type: ignore[arg-type]
        return
    with pytest.raises(DataError, match="do not add up to the energy of a trip"):
        EnergyModel.refuse_unless_telemetry(model)  # type: ignore[arg-type]
