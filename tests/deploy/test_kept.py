"""The model that a run on the road keeps: no round's, and judged within the default policy."""

from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

from fedwatt.deploy.conduct import Conduct
from fedwatt.federation.kept import GLOBAL_MODELS
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, loopback, make_fleet, pooled, weights
from tests.deploy.test_secure import secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("kept") / "fleet")


def unsteady(fleet: Path) -> str:
    """Two rounds at a rate at which the first one is the best; no reply is too long."""
    text = secured(fleet, rounds=2).replace("batch = 16", "batch = 16\nrate = 0.15")
    text = text.replace("[deploy]", "[deploy]\nevaluation_seconds = 1\nnorm_bound = 1000")
    personal = "[personal]\nenabled = true\nrates = [0.01]\nsteps = [5]\n"
    return text.replace("[secure]", personal + "[secure]")


def last_row(run: Path) -> dict:
    return read_table(run, "rounds").to_pylist()[-1]


@pytest.mark.parametrize("masked", [True, False])
def test_vehicles_judge_and_fine_tune_the_mean_of_two_rounds(
    masked: bool, fleet: Path, tmp_path: Path, lasting_identity: None
) -> None:
    text = unsteady(fleet)
    if not masked:
        text = text.replace("[secure]\nenabled = true", "[secure]\nenabled = false")
    # Without hiding, so that it is the first round that is the best.
    vehicles = partial(guarded, hiding=0.0) if masked else loopback
    run = deployed(text, vehicles(fleet, tmp_path / "state"), tmp_path / "run")
    assert not Conduct.read(run / "conduct.json").refusals
    kept, best, last = (list(weights(run, model).values()) for model in GLOBAL_MODELS)
    assert last_row(run)["best_round"] == 1
    for own, one, other in zip(kept, best, last, strict=True):
        assert not torch.equal(one, other)
        torch.testing.assert_close(own, (one + other) / 2, rtol=0, atol=1e-7)
    # Judged once as a round's model, and once by stratum.
    assert {model for model, _ in pooled(run)} == {*GLOBAL_MODELS, "personal"}
    assert last_row(run)["kept_test_rmse"] == pytest.approx(pooled(run)["kept", "all"][1], rel=1e-6)
    assert last_row(run)["kept_validation_rmse"] > last_row(run)["best_validation_rmse"]


def test_without_an_answer_the_best_model_is_kept(fleet: Path, tmp_path: Path) -> None:
    text = unsteady(fleet).replace("[secure]\nenabled = true", "[secure]\nenabled = false")
    grid = loopback(fleet, tmp_path / "state")
    asked: list[int] = []

    def silent_at_last(kind: str, node: int, reply: object) -> object:
        asked.extend([node] if kind == "evaluate" else [])
        return None if kind == "evaluate" and len(asked) > 3 * 4 else reply  # rounds 0 to 2

    grid.tamper = silent_at_last
    run = deployed(text, grid, tmp_path / "run")
    assert len(asked) == 4 * 4
    kept, best, _ = (list(weights(run, model).values()) for model in GLOBAL_MODELS)
    assert all(map(torch.equal, kept, best))
    assert last_row(run)["kept_test_rmse"] == last_row(run)["best_test_rmse"]
