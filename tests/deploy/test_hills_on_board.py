"""A published field on a vehicle's disk: the latest of a run, and nothing that piles up."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from fedwatt.deploy.hills_on_board import HillsOnBoard
from fedwatt.deploy.memory import memory_folder, remember, run_folder
from fedwatt.deploy.messages import Content
from fedwatt.elevation.encoding import field_to_arrays
from fedwatt.elevation.field import Field
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.runs import from_toml
from fedwatt.telemetry.store import vehicle_folders
from tests.deploy.hilly import hilly, hilly_fleet


def test_a_server_that_sends_field_after_field_does_not_fill_the_disk(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = vehicle_folders(hilly_fleet(tmp_path / "fleet"))[0]
    state, config = tmp_path / "state", from_toml(hilly(folder.parent))
    hills = HillsOnBoard(folder, state)
    memory = memory_folder(state, "run", "scaffold")
    remember(memory, 0, {"control": torch.ones(2)})

    def take(height_m: float, run: str = "run") -> str:
        one = np.ones(1, dtype=np.int64)
        field = Field(Grid(cell_m=config.terrain.cell_m), one, height_m * one, one, one, one)
        question = Content({"run": run, "own": False}, field_to_arrays(field))
        return hills.take(question, config).values["field"]

    other = take(1.0, "another run")
    for height_m in (1.0, 2.0, 3.0, 2.0):
        digest = take(height_m)
        assert [file.name for file in run_folder(state, "run").glob("hills-*")] == [
            f"hills-{digest}.parquet"
        ]
        assert hills.field("run", digest).elevation_m == [height_m]
    with pytest.raises(DataError, match="not on board yet"):
        hills.field("run", other)
    # What is of another run, or no field, stays.
    assert hills.field("another run", other).elevation_m == [1.0]
    assert list(memory.glob("round-*"))
