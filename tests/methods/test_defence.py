"""What holds for every defence, and which methods may have one."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods import Method, Proximal, get
from fedwatt.methods.catalogue import DEFENCES
from fedwatt.methods.coordinatewise import Median, TrimmedMean
from tests.methods.replies import normal, replies_of, step


@pytest.mark.parametrize("name", DEFENCES)
def test_the_order_of_replies_does_not_matter(name: str) -> None:
    deltas = normal(9, 30)
    windows = torch.arange(1.0, 10.0)
    turned = torch.from_numpy(normal(1, 9, seed=5).numpy().argsort()[0])
    here = step(DEFENCES[name], deltas, windows.tolist())
    there = step(DEFENCES[name], deltas[turned], windows[turned].tolist())
    # Sums run in another order: float64 rounding.
    torch.testing.assert_close(here, there, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", DEFENCES)
def test_replies_that_agree_pass(name: str) -> None:
    same = normal(1, 30).expand(7, 30)
    same = same / same[0].norm()
    torch.testing.assert_close(step(DEFENCES[name], same), same[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", sorted(DEFENCES.keys() - {"bounded", "screened"}))
def test_a_shift_of_all_replies_shifts_the_result(name: str) -> None:
    # Not so with a bound on their length or a look at it, which know where zero is.
    deltas = normal(9, 30)
    shift = 3 * normal(1, 30, seed=1)[0]
    here = step(DEFENCES[name], deltas)
    there = step(DEFENCES[name], deltas + shift)
    torch.testing.assert_close(there, here + shift, rtol=0, atol=1e-12)


def test_any_averaging_server_stands_behind_any_defence() -> None:
    method = get("fedprox@median+adam", mu=0.5, beta1=0.0)
    assert method.composition == "Proximal → Median → Adam"
    assert get("fedadam@trimmed", trim=0.1).composition == "plain SGD → TrimmedMean → Adam"
    assert get("fedavg@adam+krum") == get("fedavg@adam+krum", byzantine=1)
    weights = torch.zeros(1, dtype=torch.float64)
    replies = replies_of([[1.0], [2.0], [-90.0]])
    state = {"m": weights, "v": torch.full((1,), 1e-6, dtype=torch.float64)}
    state, moved = method.update(state, weights, replies)
    # Δ̄ is the median 1: v = 0.99e-6 + 0.01, and Adam moves by 0.01 · 1 / (√v + 0.001).
    assert state["m"].item() == 1.0
    assert moved.item() == pytest.approx(0.01 / ((0.99e-6 + 0.01) ** 0.5 + 1e-3), rel=1e-12)


@pytest.mark.parametrize(
    "name", ["scaffold@krum", "fednova@median", "feddyn@trimmed", "fedel@krum"]
)
def test_servers_that_take_in_more_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match="takes in more than their mean"):
        get(name)


def test_names_that_do_not_compose() -> None:
    with pytest.raises(SettingError, match="one defence and one server"):
        get("fedavg@krum+median")
    with pytest.raises(SettingError, match="Did you mean 'krum'"):
        get("fedavg@kurm")
    with pytest.raises(SettingError, match="hyperparameter of fedavg@krum 'trim'"):
        get("fedavg@krum", trim=0.2)


GUARDED = Method("guarded", defence=Median())
ALIKE = Method("alike", (Proximal(),), defence=Median())
TRIMMED = Method("trimmed", defence=TrimmedMean(trim=0.1))


def test_a_method_of_ones_own_keeps_its_defence_in_a_composition() -> None:
    own = f"{__name__}:GUARDED"
    assert get(f"{own}+fractional").defence == Median()
    assert get(f"{own}@adam").composition == "plain SGD → Median → Adam"


def test_parts_may_bring_the_same_defence_and_no_other() -> None:
    own, alike, trimmed = (f"{__name__}:{name}" for name in ("GUARDED", "ALIKE", "TRIMMED"))
    assert get(f"{own}+{alike}@median+adam").composition == "Proximal → Median → Adam"
    for name, second in ((f"{own}@krum+adam", "'krum'"), (f"{own}+{trimmed}", f"'{trimmed}'")):
        with pytest.raises(SettingError) as refused:
            get(name)
        message = str(refused.value)
        assert f"'{own}' brings Median() and {second} brings" in message
        assert "one of these parts" in message and "behind the @" not in message
    with pytest.raises(
        SettingError, match=r"brings TrimmedMean\(trim=0.1\) and 'trimmed' brings Tr"
    ):
        get(f"{trimmed}@trimmed")  # another share is another defence
    with pytest.raises(SettingError, match="as in 'fedavg@krum\\+adam'"):
        get(f"{own}@sgd+adam")
