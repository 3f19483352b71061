"""Fixed-point vectors: sums that are exact on the grid and within the stated bound off it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.errors import DataError, SettingError
from fedwatt.metrics.sums import VectorLayout, step


@given(limit=st.floats(1e-6, 1e12), vehicles=st.integers(1, 10_000), bits=st.sampled_from([32, 64]))
def test_the_sum_of_the_largest_values_just_fits(limit: float, vehicles: int, bits: int) -> None:
    made = step(limit, vehicles, bits)
    assert np.log2(made) == int(np.log2(made))
    largest = -(-Fraction(limit) // Fraction(made))
    assert vehicles * largest < 2 ** (bits - 1)
    # Half the step would have had no room for the next power of two above the limit, times two.
    assert vehicles * 4 * largest >= 2 ** (bits - 2)


@given(seed=st.integers(0, 10**6), vehicles=st.integers(1, 12), bits=st.sampled_from([32, 64]))
def test_sums_are_within_half_a_step_a_vehicle(seed: int, vehicles: int, bits: int) -> None:
    layout = VectorLayout({"a": (5, 3.0), "b": (1, 1e6)}, vehicles=vehicles, bits=bits)
    rng = np.random.default_rng(seed)
    values = [{"a": rng.uniform(-3, 3, 5), "b": rng.uniform(-1e6, 1e6, 1)} for _ in range(vehicles)]
    kind = np.dtype(f"<u{bits // 8}")
    total = sum((layout.encode(value_row) for value_row in values), np.zeros(layout.length, kind))
    sums = layout.decode(total)
    assert sums["clipped"] == 0
    for name, made in layout.steps.items():
        for place in range(len(values[0][name])):
            exact = sum(Fraction(contribution[name][place]) for contribution in values)
            error = abs(Fraction(float(sums[name][place])) - exact)
            assert error <= Fraction(vehicles * made / 2) + abs(exact) / 2**53


def test_whole_numbers_add_up_exactly_and_wrap_like_signed_ones() -> None:
    layout = VectorLayout({"n": (2, 10_000.0)}, vehicles=3)
    vectors = [[9_999, -7], [1, -9_000], [-10_000, 9_007]]
    total = sum(layout.encode({"n": np.array(vector)}) for vector in vectors)
    assert layout.decode(total)["n"].tolist() == [0.0, 0.0]


def test_values_beyond_their_limit_are_clipped_and_counted_in_all() -> None:
    layout = VectorLayout({"a": (3, 1.0)}, vehicles=2)
    total = layout.encode({"a": [1.0, 2.0, -5.0]}) + layout.encode({"a": [0.0, -1.5, 0.5]})
    sums = layout.decode(total)
    assert sums["a"].tolist() == [1.0, 0.0, -0.5]
    assert sums["clipped"].tolist() == [3.0]


@pytest.mark.parametrize("values", [{"a": [np.nan]}, {"a": [np.inf]}, {"a": [1, 2]}, {"b": [1]}])
def test_what_cannot_be_summed_is_refused(values: dict) -> None:
    with pytest.raises(DataError):
        VectorLayout({"a": (1, 1.0)}, vehicles=2).encode(values)


def test_a_sum_of_another_layout_is_refused() -> None:
    words = VectorLayout({"a": (1, 1.0)}, vehicles=2).encode({"a": [0.5]})
    with pytest.raises(DataError, match=r"2 words of 64 bits.* 3 of 64"):
        VectorLayout({"a": (2, 1.0)}, vehicles=2).decode(words)
    with pytest.raises(DataError, match="2 of 32"):
        VectorLayout({"a": (1, 1.0)}, vehicles=2, bits=32).decode(words)


@pytest.mark.parametrize(
    ("fields", "vehicles", "bits"),
    [({"a": (1, 0.0)}, 2, 64), ({"clipped": (1, 1.0)}, 2, 64), ({}, 0, 64), ({}, 2, 16)],
)
def test_impossible_layouts_are_refused(fields: dict, vehicles: int, bits: int) -> None:
    with pytest.raises(SettingError):
        VectorLayout(fields, vehicles=vehicles, bits=bits)
