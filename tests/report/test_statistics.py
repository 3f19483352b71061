from math import isnan, nan, sqrt

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from fedwatt.report.baselines import (
    baseline_stages,
    federated_stages,
    method_stages,
)
from fedwatt.report.load import RunTables, load_run, load_runs
from fedwatt.report.statistics import (
    compare,
    curves,
    difference,
    diverged,
    estimate,
    final,
    final_errors,
    pooled_rmse,
    rounds_of,
    stratum_rmse,
    vehicle_model,
    vehicle_rmse,
)
from fedwatt.runs.tables import write_table
from tests.report.conftest import (
    ROUNDS,
    VEHICLES,
    add_personal,
    make_run,
    test_rmse_wh,
)
from tests.report.test_baselines import with_references


@pytest.fixture(scope="module")
def run(run_folder):
    return load_run(run_folder)


def test_interval_agrees_with_scipy():
    values = [3.0, -1.0, 4.0, 1.5]
    interval = estimate(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (interval.low, interval.high) == approx((low, high))
    assert interval.std == approx(np.std(values, ddof=1))


def test_interval_widens_with_the_number_of_comparisons():
    low, high = stats.t.interval(1 - 0.05 / 4, 2, 2, 1 / sqrt(3))
    interval = estimate([1.0, 2.0, 3.0], comparisons=4)
    assert (interval.low, interval.high) == approx((low, high))


def test_noise_is_an_interval_around_zero():
    assert estimate([-1.0, -1.1, -0.9]).above_noise
    assert estimate([1.0, 1.1, 0.9]).above_noise
    assert not estimate([-1.0, 1.0, 0.5]).above_noise


@pytest.mark.parametrize("values", [[5.0], [5.0, nan]])
def test_one_seed_has_no_interval(values):
    interval = estimate(values)
    assert interval.mean == 5.0 and interval.seeds == 1
    assert isnan(interval.std) and isnan(interval.low) and not interval.above_noise


@pytest.mark.parametrize("value", [-1.5, 0.1, 3e30])
def test_copies_have_no_interval(value):
    interval = estimate([value] * 3)
    assert interval.copies and interval.mean == approx(value) and interval.std <= 1e-12 * abs(value)
    assert isnan(interval.low) and isnan(interval.high) and not interval.above_noise
    assert not estimate([value, value, value * (1 + 1e-9)]).copies
    assert not estimate([value]).copies


def test_differences_of_nothing_in_every_seed_have_an_interval():
    # Two methods that are the same one, at seeds that differ.
    interval = estimate([0.0] * 3)
    assert (
        (interval.low, interval.high) == (0.0, 0.0)
        and not interval.above_noise
        and not interval.copies
    )


def test_no_seed_has_no_mean():
    assert isnan(estimate([]).mean) and estimate([]).seeds == 0


def test_diverged_seed_is_in_no_mean(run):
    assert diverged(run, "fo-ri-fedavg") == {2: 17}
    assert diverged(run, "fedavg") == {}
    expected = [test_rmse_wh("fo-ri-fedavg", seed, ROUNDS) for seed in (1, 3)]
    assert final(run, "fo-ri-fedavg", "test_rmse") == approx(expected)
    assert len(final(run, "fedavg", "test_rmse")) == 3


def test_diverged_seed_keeps_its_curve(run):
    lines = curves(run, "fo-ri-fedavg", "test_rmse")
    assert lines.seeds == (1, 3)
    rounds, values = lines.lost[2]
    assert rounds.tolist() == list(range(17))
    assert values[5] == approx(test_rmse_wh("fo-ri-fedavg", 2, 5))


def test_differences_pair_seeds(run):
    result = difference(run, "fo-ri-fedavg")
    assert result.seeds == (1, 3)
    gap = test_rmse_wh("fo-ri-fedavg", 3, 7) - test_rmse_wh("fedavg", 3, 7)
    assert result.values[1, 7] == approx(gap)


def test_comparison_by_hand(run):
    (first,) = compare(run)
    # Vehicles have 0.60 to 1.36 times the final error, 0.98 in the mean; with FO-RI-FedAvg cars 1,
    # 6, 11 and 16 have 5 % more: 0.05 (0.6 + 0.8 + 1.0 + 1.2) / 20 = 0.009.
    gaps = [
        0.989 * test_rmse_wh("fo-ri-fedavg", seed, ROUNDS)
        - 0.98 * test_rmse_wh("fedavg", seed, ROUNDS)
        for seed in (1, 3)
    ]
    level = np.mean([0.98 * test_rmse_wh("fedavg", seed, ROUNDS) for seed in (1, 3)])
    assert first.difference.mean == approx(np.mean(gaps))
    assert first.percent == approx(100 * np.mean(gaps) / level)
    # The fixture makes every fifth vehicle 5 % worse, more than the 3 % that the method gains.
    assert (first.better, first.vehicles) == (16, 20)


def test_final_is_each_methods_own_last_round(tmp_path):
    long = make_run(tmp_path / "long", methods=("fedavg",))
    short = make_run(tmp_path / "short", methods=("fedprox",), seeds=(1,), last_round=12)
    run = load_runs([long, short])
    (first,) = compare(run)
    # Within a wobble of 1.6 Wh, FedProx ends at 52 + 48 / e² ≈ 58.5 Wh, FedAvg at 53.3 Wh. In
    # round 12, the last that both have, FedProx is below FedAvg.
    factors = {"fedprox": 0.989, "fedavg": 0.98}  # vehicle means, as in the test above
    base = factors["fedavg"] * test_rmse_wh("fedavg", 1, ROUNDS)
    gap = factors["fedprox"] * test_rmse_wh("fedprox", 1, 12) - base
    assert gap > 3 and test_rmse_wh("fedprox", 1, 12) < test_rmse_wh("fedavg", 1, 12)
    assert first.difference.mean == approx(gap) and first.difference.seeds == 1
    assert first.percent == approx(100 * gap / base)
    assert (first.better, first.vehicles) == (0, 20)
    assert rounds_of(run) == {"fedavg": ROUNDS, "fedprox": 12}


def test_runs_on_different_data_are_not_compared(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(tmp_path / "night", methods=("fedprox",), data_hash="ffff")
    assert compare(load_runs([first, second])) == []


def test_vehicles_are_means_over_finished_seeds(run):
    errors = vehicle_rmse(run, "fo-ri-fedavg")
    finals = [test_rmse_wh("fo-ri-fedavg", seed, ROUNDS) for seed in (1, 3)]
    assert list(errors) == list(VEHICLES)
    assert errors["car-02"] == approx(0.64 * np.mean(finals))


def test_strata_pool_windows(run):
    errors = stratum_rmse(run, "fedavg")
    # Vehicles have equal numbers of windows, so the pooled RMSE is the root of the mean square.
    scale = sqrt(np.mean([(0.6 + 0.04 * k) ** 2 for k in range(20)]))
    finals = [test_rmse_wh("fedavg", seed, ROUNDS) for seed in (1, 2, 3)]
    assert errors["speed: under 20 km/h"] == approx([1.15 * scale * f for f in finals])
    assert errors["speed: 20 to 60 km/h"] == approx([0.85 * scale * f for f in finals])
    assert "all" not in errors


def test_method_without_a_finished_seed_is_not_compared(tmp_path):
    folder = make_run(tmp_path / "run", diverges={("fo-ri-fedavg", s): 4 for s in (1, 2, 3)})
    run = load_run(folder)
    assert compare(run) == []
    assert final(run, "fo-ri-fedavg", "test_rmse") == []
    assert curves(run, "fo-ri-fedavg", "test_rmse").values.shape == (0, 0)


def test_the_error_of_a_method_is_that_of_the_model_vehicles_use(tmp_path):
    folder = make_run(tmp_path / "run", diverges={("fedavg", 2): 4})
    shared = {seed: 0.98 * test_rmse_wh("fedavg", seed, ROUNDS) for seed in (1, 3)}
    run = load_run(folder)
    assert vehicle_model(run, "fedavg") == "final" and final_errors(run, "fedavg") == approx(shared)
    add_personal(folder, factor=0.5)
    run = load_run(folder)
    assert vehicle_model(run, "fedavg") == "personalised"
    assert final_errors(run, "fedavg") == approx({seed: rmse / 2 for seed, rmse in shared.items()})


def test_without_errors_of_vehicles_all_windows_count_as_one(tmp_path):
    folder = make_run(tmp_path / "run", seeds=(1,))
    write_table(folder, "vehicles", [])
    assert final_errors(load_run(folder), "fedavg") == {1: test_rmse_wh("fedavg", 1, ROUNDS)}


def test_stages_lead_from_the_mean_to_the_personalised_model(tmp_path):
    folder = tmp_path / "run"
    with_references(folder)
    shared = 0.98 * np.mean([test_rmse_wh("fedavg", seed, ROUNDS) for seed in (1, 2, 3)])
    assert method_stages(load_run(folder), "fedavg") == approx({"shared model": shared})
    add_personal(folder, factor=0.5)
    run = load_run(folder)
    assert {stage.name: stage.errors[""] for stage in baseline_stages(run)} == approx(
        {"mean of the vehicle": 90.0, "local-only model": 60.0}
    )
    assert {stage.name: stage.errors["fedavg"] for stage in federated_stages(run)} == approx(
        {"shared model": shared, "with personalisation": shared / 2}
    )


def test_held_out_vehicles_are_in_no_headline_number():
    vehicles = {
        "method": np.array(["fedavg"] * 3),
        "model": np.array(["last"] * 3),
        "held_out": np.array([False, False, True]),
        "seed": np.array([1] * 3),
        "vehicle": np.array(["a", "b", "c"]),
        "stratum": np.array(["all"] * 3),
        "windows": np.array([1, 3, 100]),
        "rmse": np.array([4.0, 2.0, 90.0]),
    }
    rounds = {name: np.array([]) for name in ("method", "seed", "round", "diverged")}
    run = RunTables((), rounds, vehicles, {})
    assert vehicle_rmse(run, "fedavg") == {"a": 4.0, "b": 2.0}
    assert pooled_rmse(run, "fedavg", "last") == {"all": [7**0.5]}  # √((1·4² + 3·2²) / 4)
