"""The dynamometer benchmark: its arithmetic by hand, and the laboratory's tests where they are."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dynamometer import (
    MASS_KG,
    BenchTest,
    bench_vehicle,
    nearest_class,
    physics_wh,
    read_tests,
    summary,
)

DATA = Path(os.environ.get("FEDWATT_DATA", "../shared/data")) / "dynamometer"


@pytest.mark.parametrize(
    ("test", "cycle"),
    [
        ("CLTC_CSS/01_CLTC 01", "CLTC"),
        ("UDDS_HWY_US06_NYCC_CSS/04_SPEED_65", "CS_65"),
        ("WLTC_CADC_JC08_CSS/16 JC08 2", "JC08"),
        ("WLTC_CADC_JC08_CSS/06_Artemis_motorway_130 1", "Artemis_motorway_130"),
    ],
)
def test_tests_are_grouped_by_their_cycle(test, cycle):
    assert BenchTest(test, np.zeros(2), 1.0).cycle == cycle


def test_the_class_is_the_nearest_in_mass():
    assert nearest_class() == "saloon"  # 1,850 kg and a driver of 80 kg; the bench has 1,919 kg


def test_steady_driving_by_hand():
    # 72 km/h: 179.4 + 0.28·72 + 0.0235·72² = 321.384 N, at 20 m/s 6,427.68 W at the wheels.
    wheel_w = 321.384 * 20
    copper_w = 18_000 * (321.384 / 9000) ** 2
    iron_w = 1690 * (20 / 30) ** 1.5
    expected_w = wheel_w * 1.04 + copper_w + iron_w + 400
    vehicle = bench_vehicle("saloon")
    assert vehicle.mass_kg == MASS_KG
    assert physics_wh(vehicle, np.full(3601, 20.0)) == pytest.approx(expected_w, rel=1e-9)


def test_signs_cancel_in_the_mean_and_not_in_the_mean_absolute():
    error_summary = summary(np.array([3.0, -1.0]))
    assert (error_summary["mean_absolute_percent"], error_summary["mean_percent"]) == (2.0, 1.0)


@pytest.mark.skipif(not DATA.exists(), reason="needs the dynamometer tests of ../shared/data")
def test_the_laboratory_s_cycles_are_met_within_five_percent():
    tests = read_tests(DATA)
    vehicle = bench_vehicle(nearest_class())
    errors = [physics_wh(vehicle, test.speed_mps) / test.energy_wh - 1 for test in tests]
    assert len(tests) == 46
    assert np.abs(errors).mean() < 0.05
