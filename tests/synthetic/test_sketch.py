import numpy as np

from fedwatt.synthetic.sketch import sketch, uniforms

KEYS = np.array([3, 2**63 + 17, 12345678901234567], dtype=np.uint64)


def test_a_vehicle_is_the_same_whoever_is_made_beside_it():
    _, together = sketch(KEYS, trips=4)
    lengths, alone = sketch(KEYS[1:2], trips=4)
    assert set(alone) == {"speed_mps", "ambient_c", "ac_w", "heater_w", "energy_wh"}
    for trip, seconds in enumerate(lengths[0]):
        for name, trace in alone.items():
            assert np.array_equal(trace[:seconds, 0, trip], together[name][:seconds, 1, trip])


def test_vehicles_differ_and_use_what_cars_use():
    seconds, traces = sketch(np.arange(1, 41, dtype=np.uint64) * np.uint64(2**40 + 9), trips=6)
    speed_mps = traces["speed_mps"]
    consumption = traces["energy_wh"].sum(axis=(0, 2)) / (speed_mps.sum(axis=(0, 2)) / 1000)
    assert len(np.unique(consumption)) == 40
    assert np.quantile(consumption, 0.05) > 100 and np.quantile(consumption, 0.95) < 350  # Wh/km
    assert speed_mps.min() == 0 and 25 < speed_mps.max() < 40
    assert (traces["energy_wh"] < 0).any()  # recuperation
    assert seconds.min() >= 378 and seconds.max() < 701


def test_numbers_are_those_of_splitmix64():
    # The first output of SplitMix64 with the seed 0, from its authors' reference program.
    assert uniforms(np.zeros(1, np.uint64), 0, 1)[0, 0] == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
