from pathlib import Path

import pytest

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from tests.real_data import real_file

from .toys import a_vehicle, trained


@pytest.fixture(scope="session")
def vehicle():
    return a_vehicle()


@pytest.fixture(scope="session")
def model(vehicle, tmp_path_factory) -> EnergyModel:
    """An MLP with a vehicle's scaling and error bars."""
    file = tmp_path_factory.mktemp("edge") / "model.onnx"
    export(trained(), file, vehicle=vehicle)
    return EnergyModel(file)


@pytest.fixture(scope="session")
def ved_file() -> Path:
    return real_file("ved/EV_PHEV.parquet")
