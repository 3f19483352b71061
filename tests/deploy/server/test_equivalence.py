"""A federation of messages gives what the simulation gives, for every method."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.methods import METHODS, get
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.runs.test_execute import Silent

COMPOSED = [
    *("fedprox@krum", "fo-ri-fedavg@adam", "scaffold+fractional", "fedavg@private"),
    "fedavg+signals@screened",
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("equivalence") / "fleet")


@pytest.mark.parametrize("method", [*METHODS, *COMPOSED])
def test_the_fleet_gives_what_the_simulation_gives(
    method: str, fleet: Path, tmp_path: Path
) -> None:
    # Noise is a secret of the server and cannot be that of a simulation; clipping can.
    more = "noise_multiplier = 0.0\nclip_norm = 0.05\n" if "private" in method else ""
    text = config_text(fleet, method, more=more)
    if method == "fedprox@krum":
        text = text.replace("participation = 0.7", "participation = 1.0")
        text += "byzantine = 0\n"
    Run(from_toml(text), out=tmp_path / "simulated", observer=Silent()).execute()
    real = deployed(text, loopback(fleet, tmp_path / "state"), tmp_path / "real")
    simulated = tmp_path / "simulated"
    for model in GLOBAL_MODELS:
        weights_after = weights(simulated, model)
        got = weights(real, model)
        assert weights_after.keys() == got.keys()
        for name in weights_after:
            # A stack of one rounds otherwise than a stack of four, in the last bits of float32.
            torch.testing.assert_close(got[name], weights_after[name], rtol=0, atol=1e-6, msg=name)
    for column in ("round", "vehicle", "windows", "steps", "replied", "rejected", "flagged"):
        assert _column(real, "clients", column) == _column(simulated, "clients", column)
    columns = [("rounds", "test_rmse"), ("vehicles", "rmse")]
    columns += [("rounds", "final_validation_rmse"), ("rounds", "final_test_rmse")]
    columns += [("rounds", "agreement"), ("clients", "length_ratio")]
    for table, column in columns:
        assert _column(real, table, column) == pytest.approx(
            _column(simulated, table, column), rel=1e-4, nan_ok=True
        )
    if get(method).personalised:  # vehicles evaluate one model per round: the shared one
        assert np.isnan(_column(real, "rounds", "personal_rmse")).all()


def _column(run: Path, table: str, column: str) -> list:
    rows = read_table(run, table).to_pylist()  # connected vehicles tell no errors by stratum
    return [row[column] for row in rows if row.get("stratum", "all") == "all"]
