"""The result of training, in memory and from a run folder."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn

import fedwatt
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.evaluation import Personalisation
from fedwatt.federation import Training
from fedwatt.methods import Method, Proximal
from fedwatt.models import MLP
from fedwatt.privacy import Budget
from fedwatt.report.load import load_run, load_runs, where
from fedwatt.report.tables import privacy_table
from fedwatt.runs.config import from_tables
from fedwatt.runs.objects import named
from fedwatt.runs.run import Run
from fedwatt.runs.trained import Trained, load
from fedwatt.synthetic import synthetic_fleet
from fedwatt.synthetic.fleet import synthetic_vehicle
from fedwatt.telemetry import Trip
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.features import feature_names, trip_features
from fedwatt.windows.time_offset import MOTION, aligned

SETTINGS = DataSettings(window=10, stride=97, evaluation_stride=97)
TRAINING = Training(rounds=2, batch=16)


class Line(nn.Module):
    """A linear network."""

    def __init__(self, window: int, features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(window * features, 1)

    def forward(self, windows):
        return self.layer(windows.flatten(1)).squeeze(-1)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return synthetic_fleet(vehicles=3, seed=1, settings=SETTINGS)


@pytest.fixture(scope="module")
def trained(fleet: Fleet) -> Trained:
    return Run.on(fleet, MLP(10, 8, (5,)), training=TRAINING, seeds=(1, 2)).train("fedprox")


def rmse(trained: Trained, fleet: Fleet, **which) -> float:
    """Over all test windows of a fleet."""
    predictions = trained.predict(fleet, **which)
    errors = [predictions[c.name] - c.energy_wh(c.labels["test"]) for c in fleet.clients]
    return math.sqrt(np.mean(np.concatenate(errors) ** 2))


def test_predictions_have_the_errors_on_record(trained: Trained, fleet: Fleet) -> None:
    for seed, recorded in trained.history.last("test_rmse").items():
        # Networks predict in float32; chunks of other sizes may round otherwise.
        assert rmse(trained, fleet, seed=seed, model="last") == pytest.approx(recorded, rel=1e-6)


def test_a_trip_a_vehicle_and_a_fleet_agree(trained: Trained, fleet: Fleet) -> None:
    vehicle = synthetic_vehicle("car-002", seed=1)
    by_trip = trained.predict(vehicle)
    client = fleet.clients[1]
    first = next(trip for trip in vehicle.trips if trip.name == client.trips["test"][0])
    alone = trained.predict(first, vehicle="car-002")
    assert alone.shape == (first.seconds - 9,)
    np.testing.assert_array_equal(alone, by_trip[first.name])
    of_fleet = trained.predict(fleet)["car-002"]
    count = len(range(9, first.seconds, 97))
    np.testing.assert_allclose(of_fleet[:count], alone[::97], rtol=1e-5)


def test_a_vehicle_from_elsewhere_is_scaled_by_its_own_trips(trained: Trained) -> None:
    stranger = synthetic_vehicle("car-009", seed=1)
    assert len(trained.predict(stranger)) == len(stranger.trips)


def test_a_trip_is_aligned_as_its_vehicle_was_for_training() -> None:
    vehicles = [synthetic_vehicle(f"car-00{n}", seed=1, trips=6) for n in (1, 2)]
    ahead = [
        replace(vehicle, trips=tuple(map(two_seconds_ahead, vehicle.trips))) for vehicle in vehicles
    ]
    fleet = build_fleet(ahead, replace(SETTINGS, align=True), "early")
    client = fleet.clients[0]
    assert client.lag_s == pytest.approx(2.0, abs=0.5)
    single_run = Run.on(fleet, MLP(10, 8, (5,)), training=TRAINING).train("fedavg")
    trip = next(trip for trip in ahead[0].trips if trip.name == client.trips["test"][0])
    predictions = single_run.predict(trip, vehicle="car-001")[::97]
    expected = single_run.predict(fleet)["car-001"]
    np.testing.assert_allclose(predictions, expected[: len(predictions)], rtol=1e-5)
    np.testing.assert_array_equal(single_run.predict(ahead[0])[trip.name][::97], predictions)
    # A vehicle that has been aligned is not delayed again.
    twice = single_run.predict(aligned(ahead[0], client.lag_s))[trip.name][::97]
    np.testing.assert_array_equal(twice, predictions)


def two_seconds_ahead(trip: Trip) -> Trip:
    """The trip with its motion recorded two seconds before the power it takes."""
    motion = {name: v for name, v in trip.channels.items() if name in MOTION}
    moved = {name: np.append(values[2:], values[-2:]) for name, values in motion.items()}
    return replace(trip, channels={**trip.channels, **moved})


def test_mixtures_predict_as_they_do_in_the_run(tmp_path: Path) -> None:
    tables = {
        "fleet": {"vehicles": 3, "trips": 12},
        "data": {"window": 10, "stride": 97, "evaluation_stride": 97},
        "training": {"rounds": 1},
        "model": {"mixture": True},
        "seeds": [1],
        "baselines": {"enabled": False},
        "method": [{"name": "fedavg"}],
    }
    Run(from_tables(tables), out=tmp_path / "run").execute()
    back = load(tmp_path / "run")
    used = load_run(tmp_path / "run").vehicles
    rows = where(used, model="final", stratum="all")
    predictions = back.predict(back.fleet)
    for name, recorded in zip(rows["vehicle"], rows["rmse"], strict=True):
        client = back._client(name)
        error = predictions[name] - client.energy_wh(client.labels["test"])
        assert math.sqrt(np.mean(error**2)) == pytest.approx(recorded, rel=1e-5)
    vehicle = synthetic_vehicle("car-002", trips=12)
    card = back.export(tmp_path / "model.onnx", vehicle=vehicle)
    assert card.network_weight < 1
    columns = trip_features(vehicle.trips[0], feature_names("base"), "car-002")
    ends = np.arange(9, vehicle.trips[0].seconds)
    vehicle_field = EnergyModel(tmp_path / "model.onnx").energies(columns, ends)
    expected = back.predict(vehicle)[vehicle.trips[0].name]
    np.testing.assert_allclose(vehicle_field, expected, rtol=1e-4, atol=1e-3)


def test_saved_and_loaded(trained: Trained, fleet: Fleet, tmp_path: Path) -> None:
    folder = trained.save(tmp_path / "run")
    back = load(str(folder))
    assert isinstance(back, Trained)
    assert (back.label, back.config.seeds, back.folder) == ("fedprox", (1, 2), folder)
    assert back.config.model.hidden == (5,)
    assert back.config == trained.config
    assert_frame_equal(back.frame(), trained.frame(), check_column_order=False)
    for name, result in back.predict(fleet, seed=2).items():
        # Equal but for where weights lie in memory, which may change how a product is rounded.
        np.testing.assert_allclose(result, trained.predict(fleet, seed=2)[name], rtol=1e-6)
    assert load_run(str(folder)).methods == ("fedprox",)
    with pytest.raises(RunError, match="exists and is not empty"):
        trained.save(folder)
    with pytest.raises(SettingError, match="Unknown method of this run 'fedavg'"):
        load(folder, method="fedavg")


def test_one_of_several_methods_is_saved_alone(tmp_path: Path) -> None:
    tables = {
        "fleet": {"vehicles": 2, "trips": 6},
        "data": {"window": 10, "stride": 97, "evaluation_stride": 97},
        "training": {"rounds": 1},
        "seeds": [1],
        "baselines": {"enabled": False},
        "method": [{"name": "fedavg"}, {"name": "fedprox"}],
    }
    Run(from_tables(tables), out=tmp_path / "both").execute()
    both = load(tmp_path / "both", method="fedprox")
    loaded = load(both.save(tmp_path / "one", baselines=False))
    assert [choice.label for choice in loaded.config.methods] == ["fedprox"]
    assert torch.equal(loaded.state.weights, both.state.weights)


def test_exported_predicts_the_same(trained: Trained, tmp_path: Path) -> None:
    vehicle = synthetic_vehicle("car-001", seed=1)
    card = trained.export(tmp_path / "model.onnx", vehicle="car-001", seed=2)
    assert (card.vehicle, card.backbone) == ("car-001", "mlp")
    model = EnergyModel(tmp_path / "model.onnx")
    trip = vehicle.trips[0]
    columns = trip_features(trip, feature_names("base"), "car-001")
    energies_wh = model.energies(columns, np.arange(9, trip.seconds))
    expected = trained.predict(trip, vehicle="car-001", seed=2)
    np.testing.assert_allclose(energies_wh, expected, rtol=1e-4, atol=1e-3)


def test_personal_models(trained: Trained, fleet: Fleet, tmp_path: Path) -> None:
    tuned = trained.personalise(Personalisation(rates=(0.01,), steps=(20,), batch=16))
    # Chosen by validation, so no worse there; on test windows it only differs.
    assert rmse(tuned, fleet) != rmse(trained, fleet) == rmse(tuned, fleet, model="final")
    back = load(tuned.save(tmp_path / "own"))
    expected = tuned.predict(fleet)["car-003"]
    np.testing.assert_allclose(back.predict(fleet)["car-003"], expected, rtol=1e-6)
    with pytest.raises(SettingError, match="has no personalised model"):
        trained.predict(fleet, model="personalised")
    with pytest.raises(SettingError, match="say whose"):
        tuned.export(tmp_path / "model.onnx")


def test_reports_of_what_is_in_memory(
    trained: Trained, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Run.on(fleet, Line, training=TRAINING, seeds=(1, 2)).train("fedavg")
    seen = []

    def write_report(*runs: Path, out: Path) -> Path:
        """In place of figures, which have tests of their own."""
        run = load_runs(runs)
        seen.extend(run.methods)
        assert run.same_data
        return out / "report.html"

    monkeypatch.setattr("fedwatt.report.write.write_report", write_report)
    assert trained.report(other, out=tmp_path) == tmp_path / "report.html"
    assert seen == ["fedprox", "fedavg"]
    with pytest.raises(SettingError, match="Say which folder"):
        trained.report()


def test_own_objects_are_written_down_by_reference(fleet: Fleet, tmp_path: Path) -> None:
    method = Method("pulled", (Proximal(mu=0.3),))
    outcome = Run.on(fleet, Line(10, 8), training=TRAINING).train(method)
    assert outcome.config.model.name.endswith(":Line")
    (choice,) = outcome.config.methods
    assert (choice.label, choice.method.name) == ("pulled", "proximal")
    back = load(outcome.save(tmp_path / "own"))
    expected = outcome.predict(fleet)["car-001"]
    np.testing.assert_allclose(back.predict(fleet)["car-001"], expected, rtol=1e-6)


def test_names_of_methods() -> None:
    from fedwatt.methods import get
    from fedwatt.methods.defence import Krum

    for name in ("scaffold", "fo-ri-fedavg@krum+adam", "fedavg"):
        assert named(get(name)).method.name == name
    renamed = Method("mine", get("scaffold").local, get("scaffold").server)
    name = named(renamed).method.name
    assert name == "fedwatt.methods.scaffold:ControlVariates@fedwatt.methods.scaffold:Scaffold"
    assert get(name).rules == renamed.rules
    assert named(Method("safe", (), defence=Krum())).method.name == "fedavg@krum+average"


def test_a_network_that_no_name_makes(fleet: Fleet, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(80, 3), nn.Tanh(), nn.Linear(3, 1))
    outcome = Run.on(fleet, network, training=TRAINING).train("fedavg")
    folder = outcome.save(tmp_path / "own")
    assert outcome.config.model.name == "own"
    with pytest.raises(SettingError, match=r"was given as an object in Python.*load\(RUN, model="):
        load(folder).predict(fleet)
    back = load(folder, model=network)
    expected = outcome.predict(fleet)["car-001"]
    np.testing.assert_allclose(back.predict(fleet)["car-001"], expected, rtol=1e-6)
    back.export(tmp_path / "model.onnx")
    assert EnergyModel(tmp_path / "model.onnx").card.backbone == "own"


def test_a_synthetic_fleet_is_made_again_whatever_its_number_of_trips(tmp_path: Path) -> None:
    fleet = synthetic_fleet(2, 5, SETTINGS, trips=7)
    folder = Run.on(fleet, training=TRAINING).train("fedavg").save(tmp_path / "run")
    again = load(folder).fleet
    assert (again.data_hash(), again.source) == (fleet.data_hash(), fleet.source)


def test_references_are_worked_out_unless_unwanted(fleet: Fleet, tmp_path: Path) -> None:
    outcome = Run.on(fleet, training=TRAINING).train("fedavg")
    for name, expected in (("with", True), ("without", False)):
        saved = outcome.save(tmp_path / name, baselines=expected)
        trained_there = Run.on(fleet, training=TRAINING).train(
            "fedavg", out=tmp_path / f"{name}-out", baselines=expected
        )
        for folder in (saved, trained_there.folder):
            assert folder is not None
            assert (folder / "baselines.parquet").exists() == expected


def test_a_fleet_that_is_not_stored(trained: Trained, fleet: Fleet, tmp_path: Path) -> None:
    some = Fleet(fleet.clients[:2], fleet.settings, "by hand")
    outcome = Run.on(some, training=TRAINING).train("fedavg")
    folder = outcome.save(tmp_path / "own")
    with pytest.raises(DataError, match="was made in Python and is not stored"):
        _ = load(folder).fleet
    assert load(folder, fleet=some).fleet is some


def test_vehicles_on_the_road_are_not_here(trained: Trained, fleet: Fleet, tmp_path: Path) -> None:
    folder = trained.save(tmp_path / "run", baselines=False)
    (folder / "deployment.json").write_text("{}")
    # Its configuration has the usual [fleet], which would be made in their place.
    with pytest.raises(DataError, match=r"are deployed.*load\(RUN, fleet="):
        _ = load(folder).fleet
    assert load(folder, fleet=fleet).predict(fleet).keys() == set(fleet.names)


def test_privacy_is_accounted_for_in_memory_as_in_a_folder(fleet: Fleet, tmp_path: Path) -> None:
    training = replace(TRAINING, sampling="poisson")
    messages: list[float] = []
    private = Run.on(fleet, MLP(10, 8, (5,)), training=training, device="cpu")
    trained = private.train(
        "fedavg@private",
        on_round=lambda state, record: messages.extend(row["epsilon"] for row in record.rounds),
    )
    spent = trained.frame()["epsilon"].to_list()
    beside = private.train("fedavg@private", out=tmp_path / "out", baselines=False)
    assert spent == beside.frame()["epsilon"].to_list() == [0.0, *messages]
    expected = Budget(1.0, training.participation, 3**-1.1)
    assert spent == [expected.epsilon(rounds) for rounds in (0, 1, 2)]
    saved = load_run(trained.save(tmp_path / "saved", baselines=False))
    assert saved.rounds["epsilon"].tolist() == spent
    assert privacy_table(saved).rows == privacy_table(load_run(tmp_path / "out")).rows
    assert len(privacy_table(saved).rows) == 1


def test_training_into_a_folder_goes_on_after_a_stop(fleet: Fleet, tmp_path: Path) -> None:
    run = Run.on(fleet, training=TRAINING)
    expected = run.train("scaffold")

    def stop(state, record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train("scaffold", out=tmp_path / "run", on_round=stop)
    with pytest.raises(RunError, match="already holds a run"):
        run.train("scaffold", out=tmp_path / "run")
    outcome = run.train("scaffold", out=tmp_path / "run", resume=True)
    assert torch.equal(outcome.state.weights, expected.state.weights)
    assert outcome.folder == tmp_path / "run"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t, f: t.predict(synthetic_vehicle("car-001").trips[0]), "say whose it is"),
        (lambda t, f: t.predict(f, seed=7), "There is no seed 7; there are 1, 2"),
        (lambda t, f: t.predict(f, model="worst"), "Unknown model of a run 'worst'"),
        (lambda t, f: t.frame("round"), "Unknown table 'round'. Did you mean 'rounds'"),
        (lambda t, f: t.predict(synthetic_fleet(2)), "The model reads 10 s"),
        (lambda t, f: t.export("m.onnx", vehicle="car-9"), "Unknown vehicle 'car-9'"),
        (lambda t, f: fedwatt.Run.on(f, 3), "A model is a name, a torch.nn.Module or a class"),
        (lambda t, f: fedwatt.Run.on(f, lambda: 3), "gives a int; it must be a class or"),
    ],
)
def test_one_clear_sentence(trained: Trained, fleet: Fleet, call, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        call(trained, fleet)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a finished run"):
        load(tmp_path / "absent")
