import os
from pathlib import Path

import pytest

from fedwatt.edge.export import export
from fedwatt.edge.session import EnergyModel

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
    root = Path(__file__).parents[3]
    file = Path(os.environ.get("FEDWATT_DATA", root / "shared" / "data")) / "ved/EV_PHEV.parquet"
    if not file.is_file():
        pytest.skip(f"VED is not at hand: {file} does not exist (FEDWATT_DATA sets its folder)")
    return file
