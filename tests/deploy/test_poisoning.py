"""One valid key does not own the model or the report: what a lying vehicle can do is bounded."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.deploy.conduct import MOST_FAULTS, Conduct
from fedwatt.deploy.limits_of_replies import capped, shortened
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.metrics import SUMS
from fedwatt.privacy.fixed_point import Layout, packed, unpacked
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.deploy.test_secure import secured

Change = Callable[[Content], Content]
LIAR = 1


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("poisoning") / "fleet")


def trained(fleet: Path, folder: Path, lies: dict[str, Change], rounds: int = 1) -> Path:
    """A plain run of four vehicles of which one changes its answers to some questions."""
    grid = loopback(fleet, folder / "state")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if node != LIAR or kind not in lies:
            return reply
        return to_records(lies[kind](from_records(reply)))

    grid.tamper = tamper
    text = config_text(fleet, rounds=rounds).replace("participation = 0.7", "participation = 1.0")
    return deployed(text.replace("round_seconds = 5", "round_seconds = 0.5"), grid, folder / "run")


def flat(run: Path) -> np.ndarray:
    found = weights(run)
    return np.concatenate([found[name].numpy().ravel() for name in sorted(found)])


def size(windows: int) -> Change:
    return lambda reply: Content(
        reply.values, {"windows": np.array([windows, *reply.arrays["windows"][1:]])}
    )


def reply_of(delta: float, windows: int | None = None) -> Change:
    def changed(reply: Content) -> Content:
        values = dict(reply.values) | ({} if windows is None else {"windows": windows})
        return Content(values, {"delta": np.full_like(reply.arrays["delta"], delta)})

    return changed


@pytest.mark.parametrize("delta", [1.0, -1.0, 1e30])
def test_weight_and_length_of_one_reply_are_bounded(
    delta: float, fleet: Path, tmp_path: Path
) -> None:
    lies = {"enrol": size(4_000_000), "train": reply_of(delta, 4_000_000)}
    honest = trained(fleet, tmp_path / "honest", {})
    poisoned = trained(fleet, tmp_path / "poisoned", lies)
    drift = [r["drift"] for r in read_table(honest, "clients").to_pylist()]
    # One of four: at most 5 medians heavy and 5 medians long, so at most 25/8 of an honest step,
    # and its weight takes the honest mean's away.
    moved = np.linalg.norm(flat(poisoned) - flat(honest))
    assert moved <= (25 / 8 + 2) * max(drift)
    rows = read_table(poisoned, "rounds").to_pylist()
    assert rows[-1]["replies"] == 4 and not rows[-1]["diverged"]
    assert rows[-1]["test_rmse"] < 3 * rows[0]["test_rmse"]  # 376,475 Wh without the limits
    (fault,) = Conduct.read(poisoned / "conduct.json").faults["car-004"]
    assert fault == "its reply is over 5 times as long as usual"


def test_error_sums_of_other_windows_than_enrolled_are_faults(fleet: Path, tmp_path: Path) -> None:
    fine = np.zeros(len(SUMS))
    fine[0] = 4_000_000
    lie = {"evaluate": lambda reply: Content({}, {"validation": fine, "test": fine})}
    run = trained(fleet, tmp_path, lie, rounds=3)
    honest = trained(fleet, tmp_path / "honest", {}, rounds=3)
    told, true = (read_table(one, "rounds")["test_rmse"].to_pylist() for one in (run, honest))
    # Of the three others, and near to what all four say.
    assert all(0.7 < one / other < 1.4 for one, other in zip(told, true, strict=True))
    faults = Conduct.read(run / "conduct.json").faults["car-004"]
    assert len(faults) == MOST_FAULTS and "it enrolled with" in faults[0]
    # Set aside after three: nobody asks it in the third round.
    called = [r["vehicle"] for r in read_table(run, "clients").to_pylist() if r["round"] == 3]
    assert called == ["car-001", "car-002", "car-003"]


def test_who_enrols_with_millions_is_not_all_that_a_report_shows(
    fleet: Path, tmp_path: Path
) -> None:
    sums = np.zeros(len(SUMS))
    sums[0] = 4_000_000
    everywhere = np.array([4_000_000] * 3)
    lies = {
        "enrol": lambda reply: Content(reply.values, {"windows": everywhere}),
        "evaluate": lambda reply: Content({}, {"validation": sums, "test": sums}),
        "train": reply_of(0.0, 4_000_000),
    }
    run = trained(fleet, tmp_path, lies)
    honest = trained(fleet, tmp_path / "honest", {})
    told, true = (read_table(one, "rounds")["test_rmse"].to_pylist()[0] for one in (run, honest))
    # No error at all, on at most 5 of 8 shares of the windows: √(3/8) of the honest RMSE.
    assert told > 0.5 * true


@pytest.mark.parametrize(
    ("weight", "delta", "reason"),
    [(4e6, 16.0, "add up to a weight"), (2e5, 16.0, "long, and secure.norm_limit")],
)
def test_a_lie_under_masks_makes_no_model(
    weight: float, delta: float, reason: str, fleet: Path, tmp_path: Path, caplog
) -> None:
    grid = guarded(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "secure-train" and node == LIAR:
            record = reply.config_records["values"]
            words = unpacked(record["words"], 48)
            parameters = len(words) - 6  # a weight, check words, clipped values
            wide = {"weight": (1, 2e5), "delta": (parameters, 2e5 * 16.0)}
            steps = Layout(wide, vehicles=4, bits=48).steps
            # Masks let anything be added; the vehicle's own guards are what the liar left out.
            words[0] += np.uint64(round(weight / steps["weight"]))
            words[1:-5] += np.uint64(round(weight * delta / steps["delta"]))
            record["words"] = packed(words, 48)
        return reply

    grid.tamper = tamper
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    assert reason in caplog.text
    rows = read_table(run, "rounds").to_pylist()
    assert [row["replies"] for row in rows] == [0, 0, 0]
    assert rows[-1]["test_rmse"] == rows[0]["test_rmse"]


@given(st.floats(1e-3, 1e30), st.integers(2, 12))
def test_a_long_reply_is_as_long_as_the_limit(length: float, count: int) -> None:
    rows = torch.ones(count, 4) / 2  # of length 1
    rows[0] *= length
    short, long = shortened(rows, np.ones(count, dtype=bool), 5.0)
    usual = min(1.0, length) if count == 2 else 1.0
    assert (long[0] == (length > 5 * usual) and not long[1:].any()) or count == 2
    assert float(short[0].double().norm()) <= 5 * max(usual, 1.0) * (1 + 1e-6)


def test_limits_by_hand() -> None:
    rows, usable = torch.tensor([[1.0, 0.0], [1.0, 0.0], [40.0, 0.0]]), np.ones(3, dtype=bool)
    short, long = shortened(rows, usable, 5.0)
    assert long.tolist() == [False, False, True] and short[2].tolist() == [5.0, 0.0]
    assert torch.equal(short[:2], rows[:2])
    assert not shortened(rows, usable, 40.0)[1].any()
    assert capped([3, 70], [1, 2, 3, 70], float("inf")).tolist() == [3, 70]
