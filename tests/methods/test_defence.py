"""Properties of every defence, and the methods that may have one."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.methods import Method, Proximal, get
from fedwatt.methods.catalogue import DEFENCES
from fedwatt.methods.defence import (
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormBound,
    TrimmedMean,
    geometric_median,
    krum_scores,
    trimmed_mean,
)
from fedwatt.methods.server import mean_delta
from tests.methods.replies import normal, replies_of, step


@pytest.mark.parametrize("name", DEFENCES)
def test_the_order_of_replies_does_not_matter(name: str) -> None:
    deltas = normal(9, 30)
    windows = torch.arange(1.0, 10.0)
    turned = torch.from_numpy(normal(1, 9, seed=5).numpy().argsort()[0])
    here = step(DEFENCES[name], deltas, windows.tolist())
    moved = step(DEFENCES[name], deltas[turned], windows[turned].tolist())
    # Sums run in another order: float64 rounding.
    torch.testing.assert_close(here, moved, rtol=0, atol=1e-13)


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
    moved = step(DEFENCES[name], deltas + shift)
    torch.testing.assert_close(moved, here + shift, rtol=0, atol=1e-12)


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
    with pytest.raises(SettingError, match="needs more than their mean"):
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
    guarded = f"{__name__}:GUARDED"
    assert get(f"{guarded}+fractional").defence == Median()
    assert get(f"{guarded}@adam").composition == "plain SGD → Median → Adam"


def test_parts_may_bring_the_same_defence_and_no_other() -> None:
    guarded, alike, trimmed = (f"{__name__}:{name}" for name in ("GUARDED", "ALIKE", "TRIMMED"))
    assert get(f"{guarded}+{alike}@median+adam").composition == "Proximal → Median → Adam"
    for name, second in (
        (f"{guarded}@krum+adam", "'krum'"),
        (f"{guarded}+{trimmed}", f"'{trimmed}'"),
    ):
        with pytest.raises(SettingError) as refused:
            get(name)
        message = str(refused.value)
        assert f"'{guarded}' brings Median() and {second} brings" in message
        assert "one of these parts" in message and "after the @" not in message
    with pytest.raises(
        SettingError, match=r"brings TrimmedMean\(trim=0.1\) and 'trimmed' brings Tr"
    ):
        get(f"{trimmed}@trimmed")  # another share is another defence
    with pytest.raises(SettingError, match="as in 'fedavg@krum\\+adam'"):
        get(f"{guarded}@sgd+adam")


def test_scores_by_hand() -> None:
    # N = 6, f = 1: the three nearest others of each reply, squared.
    deltas = torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]])
    expected = [1 + 4 + 9, 1 + 1 + 4, 1 + 1 + 4, 1 + 4 + 4, 4 + 9 + 16, 49 + 81 + 100]
    assert krum_scores(deltas, 1).tolist() == expected


def test_krum_takes_the_reply_in_the_thick_of_it() -> None:
    # Replies 1 and 2 both score 6; the first of them wins, with its own displacement unchanged.
    assert step(Krum(), [[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]]).item() == -1.0


def test_a_reply_is_not_its_own_neighbour() -> None:
    # Two equal liars of N = 7, f = 2 (three neighbours): counting oneself would give them two
    # neighbours for free and the score (0 + 0 + 99²) still loses, but honest scores would change.
    deltas = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [100.0], [100.0]])
    scores = krum_scores(deltas, 2).tolist()
    assert scores[2] == 1 + 1 + 4
    assert scores[5] == scores[6] == 0 + 96**2 + 97**2


def test_nearly_equal_replies_keep_their_order() -> None:
    # ‖x‖² + ‖y‖² - 2x·y loses these differences at 1e8; by differences they are exact in float64.
    deltas = 1e8 + torch.tensor([[0.0], [1.0], [2.0], [3.0], [7.0]], dtype=torch.float64)
    assert krum_scores(deltas, 1).tolist() == [5.0, 2.0, 2.0, 5.0, 41.0]


def test_multi_krum_averages_by_windows() -> None:
    deltas = [[-2.0], [-1.0], [0.0], [1.0], [3.0], [10.0]]
    windows = [1.0, 1.0, 3.0, 4.0, 1.0, 9.0]
    # The three lowest scores are 6, 6 and 9: replies -1, 0 and 1.
    assert step(MultiKrum(keep=3), deltas, windows).item() == (-1 + 0 + 4) / 8
    # By default N - 2f - 2 = 2 of them.
    assert step(MultiKrum(), deltas, windows).item() == -1 / 4


def test_multi_krum_that_keeps_all_is_the_mean() -> None:
    deltas = normal(7, 50)
    windows = [float(k + 1) for k in range(7)]
    everybody = step(MultiKrum(byzantine=0, keep=7), deltas, windows)
    assert torch.equal(everybody, mean_delta(replies_of(deltas, windows)))


@pytest.mark.parametrize("liars", [1, 2])
def test_krum_never_takes_a_far_reply(liars: int) -> None:
    honest = normal(7 - liars, 3)
    deltas = torch.cat([torch.full((liars, 3), 1e12, dtype=torch.float64), honest])
    assert (step(Krum(byzantine=2), deltas) == honest).all(dim=-1).any()


def test_too_few_replies_are_refused_with_the_numbers() -> None:
    with pytest.raises(SettingError, match=r"Krum\(byzantine=1\) needs at least 5 replies.* 4\."):
        step(Krum(), normal(4, 2))
    with pytest.raises(SettingError, match=r"needs at least 8 replies"):
        step(MultiKrum(byzantine=2, keep=6), normal(7, 2))
    with pytest.raises(SettingError, match="at least 0"):
        Krum(byzantine=-1)


def test_median_by_hand() -> None:
    # Windows do not count: a vehicle that claims a million of them has one vote.
    odd = [[1.0, -4.0], [5.0, 2.0], [3.0, -9.0]]
    assert step(Median(), odd, [1e6, 1.0, 1.0]).tolist() == [3.0, -4.0]
    assert step(Median(), [*odd, [-7.0, 0.0]]).tolist() == [2.0, -2.0]


@pytest.mark.parametrize("count", [1, 2])
def test_median_of_one_or_two_is_their_mean(count: int) -> None:
    deltas = normal(count, 20)
    assert torch.equal(step(Median(), deltas), deltas.sum(dim=0) / count)


def test_trimmed_mean_by_hand() -> None:
    deltas = [[-100.0], [1.0], [2.0], [6.0], [50.0]]
    assert step(TrimmedMean(trim=0.2), deltas, [9, 1, 1, 1, 9]).item() == 3.0
    assert step(TrimmedMean(trim=0.19), deltas).item() == -41 / 5  # ⌊0.95⌋ = 0


def test_the_floor_is_that_of_the_exact_product() -> None:
    # 0.29 · 100 is 28.999999999999996 in floating point: 29 are dropped at either end, not 28.
    squares = torch.arange(100).double()[:, None] ** 2
    assert trimmed_mean(squares, 0.29).item() == squares[29:71].mean().item()


def test_without_trimming_it_is_the_uniform_mean() -> None:
    deltas = normal(6, 20)
    # Summed in another order: equal up to the rounding of float64.
    torch.testing.assert_close(step(TrimmedMean(trim=0), deltas), deltas.mean(dim=0))


@pytest.mark.parametrize("count", [3, 5, 9])
def test_trimming_all_but_one_is_the_median(count: int) -> None:
    deltas = normal(count, 20)
    most = (count - 1) / 2 / count
    assert torch.equal(step(TrimmedMean(trim=most), deltas), step(Median(), deltas))


@pytest.mark.parametrize("defence", [Median(), TrimmedMean(trim=0.4)])
def test_liars_cannot_leave_the_range_of_the_honest(defence) -> None:
    honest = normal(3, 40)
    liars = torch.stack([torch.full((40,), 1e12), torch.full((40,), -1e12)]).double()
    here = step(defence, torch.cat([honest, liars]))
    same_side = step(defence, torch.cat([honest, liars.abs()]))
    for moved in (here, same_side):
        assert (moved >= honest.amin(dim=0)).all()
        assert (moved <= honest.amax(dim=0)).all()


def test_half_is_too_much() -> None:
    with pytest.raises(SettingError, match=r"trim must be in \[0, 0.5\)"):
        TrimmedMean(trim=0.5)


def uniform(count: int) -> torch.Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def test_on_a_line_it_is_the_weighted_median() -> None:
    # Three of four windows are at -1: no other point is closer to all of them.
    moved = step(GeometricMedian(iterations=200, tolerance=0.0), [[-1.0], [7.0]], [3.0, 1.0])
    assert moved.item() == pytest.approx(-1.0, abs=1e-4)  # smoothing 1e-5 holds it off by that


def test_of_a_square_it_is_the_middle() -> None:
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    centre = geometric_median(corners + torch.tensor([5.0, -3.0]), uniform(4))
    torch.testing.assert_close(centre, torch.tensor([5.0, -3.0], dtype=torch.float64))


def test_one_iteration_by_hand() -> None:
    # Mean of (0, 0, 0, 8) is 2; distances 2, 2, 2, 6, so the pulls are 1/2, 1/2, 1/2, 1/6:
    # (8/6) / (10/6) = 0.8.
    moved = step(GeometricMedian(iterations=1), [[0.0], [0.0], [0.0], [8.0]])
    assert moved.item() == pytest.approx(0.8, abs=1e-12)


def test_without_iterations_it_is_the_mean() -> None:
    deltas = normal(6, 30)
    windows = [float(k + 1) for k in range(6)]
    mean = mean_delta(replies_of(deltas, windows))
    assert torch.equal(step(GeometricMedian(iterations=0), deltas, windows), mean)
    # A smoothing larger than every distance makes all pulls equal.
    smooth = step(GeometricMedian(smoothing=1e9), deltas, windows)
    torch.testing.assert_close(smooth, mean, rtol=0, atol=1e-12)


def test_equal_replies_are_their_median() -> None:
    same = torch.full((5, 3), -0.75, dtype=torch.float64)
    torch.testing.assert_close(step(GeometricMedian(), same), same[0], rtol=0, atol=1e-15)


def test_a_liar_with_a_fifth_of_the_windows_is_held_off() -> None:
    honest = normal(4, 10)
    radius = honest.norm(dim=-1).max().item()
    deltas = torch.cat([honest, torch.full((1, 10), 1e9, dtype=torch.float64)])
    moved = step(GeometricMedian(iterations=100, tolerance=0.0), deltas)
    # With a share α of wrong windows it stays within 2(1 - α)/(1 - 2α) of the honest radius.
    assert moved.norm().item() <= 2 * 0.8 / 0.6 * radius


def test_each_iteration_shrinks_a_far_reply_by_its_odds() -> None:
    # Honest replies at 0, one of five at L: the mean is L/5, and v ← v/4 · L/(L - v) + ... To first
    # order in v/L every iteration multiplies v by α/(1 - α) = 1/4.
    length = 1e9
    deltas = torch.zeros(5, 1, dtype=torch.float64)
    deltas[4] = length
    path = [step(GeometricMedian(iterations=r), deltas).item() for r in (3, 4, 5)]
    assert path[1] / path[0] == pytest.approx(0.25, rel=0.01)
    assert path[2] / path[1] == pytest.approx(0.25, rel=0.01)


def test_by_hand() -> None:
    # (3, -4) is 5 long and shrinks to (0.6, -0.8); (0, 0.5) stays; weights 1 and 3.
    moved = step(NormBound(bound=1.0), [[3.0, -4.0], [0.0, 0.5]], [1.0, 3.0])
    torch.testing.assert_close(
        moved, torch.tensor([0.15, -0.2 + 0.375], dtype=torch.float64), rtol=0, atol=1e-15
    )


def test_nothing_is_longer_than_the_bound_and_nothing_turns() -> None:
    deltas = normal(20, 8)
    bounded = NormBound(bound=2.0).screen(replies_of(deltas)).deltas
    assert bounded.norm(dim=-1).max() <= 2.0 + 1e-12
    torch.testing.assert_close(torch.cosine_similarity(bounded, deltas), torch.ones(20).double())


@pytest.mark.parametrize("bound", [1e9, float("inf")])
def test_a_bound_that_never_bites_is_the_mean(bound: float) -> None:
    deltas = torch.cat([normal(4, 8), torch.zeros(1, 8)])
    windows = [1.0, 2.0, 3.0, 4.0, 5.0]
    mean = mean_delta(replies_of(deltas, windows))
    assert torch.equal(step(NormBound(bound=bound), deltas, windows), mean)


def test_a_liar_moves_the_mean_by_its_share_of_the_bound_at_most() -> None:
    honest = torch.zeros(3, 4, dtype=torch.float64)
    liar = torch.full((1, 4), -1e12, dtype=torch.float64)
    assert step(NormBound(bound=0.4), torch.cat([honest, liar])).norm() == pytest.approx(0.1)


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="bound must be above 0"):
        NormBound(bound=0.0)
