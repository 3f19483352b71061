"""The whole exchange: survivors' exact sums whatever drops out, and noise for everybody else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from fedwatt.errors import RunError
from fedwatt.metrics.sums import reduced, word_type
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.keys import own_mask, pair_mask
from fedwatt.privacy.secure.messages import Masked
from fedwatt.privacy.secure_settings import SecureTerms
from tests.privacy.exchanges import Stopped, collect, entropy_of, names_of, random_words, terms_of
from tests.privacy.rehearsal import STAGES, rehearse


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bits=st.sampled_from([32, 48, 64]))
def test_any_allowed_drop_outs_leave_the_survivors_exact_sum(data, bits: int) -> None:
    count = data.draw(st.integers(2, 8), label="vehicles")
    stages = data.draw(st.lists(st.sampled_from(STAGES), min_size=count, max_size=count))
    last = dict(zip(names_of(count), stages, strict=True))
    terms = terms_of(count, length=3, bits=bits)
    threshold = data.draw(st.integers(count // 2 + 1, count).filter(lambda t: t >= 2))
    terms = replace(terms, threshold=threshold)
    words = random_words(count, 3, bits, seed=count)
    entropy = entropy_of(count)
    if stages.count("everything") < threshold:
        with pytest.raises(RunError, match="are needed"):
            rehearse(terms, words, last, entropy=entropy)
        return
    total, survivors = rehearse(terms, words, last, entropy=entropy)
    arrived = [name for name in words if last[name] in ("vector", "agreement", "everything")]
    assert list(survivors) == arrived
    assert (total == reduced(sum(words[name] for name in arrived), bits)).all()


def test_three_vehicles_by_hand() -> None:
    # The vector of the last one never arrives; 1 + 3 and 2 + 4 do.
    words = {name: np.array([k, k + 1], "<u8") for name, k in (("a", 1), ("b", 3), ("c", 100))}
    total, survivors = rehearse(terms_of(3, 2), words, {"c": "shares"})
    assert total.tolist() == [4, 6]
    assert survivors == ("a", "b")


def test_a_message_is_the_vector_under_one_own_and_all_pair_masks() -> None:
    # Written out: masks of "car-000" are added for the pairs in which it comes first.
    held = Stopped(count=3)
    me = "car-001"
    terms = held.terms
    state = held.shared["car-001"]
    keys = {name: advert.mask_key for name, advert in held.adverts.items()}
    expected = held.words[me] + own_mask(terms, state.seed, me)
    before = held.shared["car-000"].mask_secret
    expected = expected - pair_mask(terms, before, keys[me], "car-000", me)
    expected = expected + pair_mask(terms, state.mask_secret, keys["car-002"], me, "car-002")
    assert held.masked[me].words == expected.tobytes()


def uniform(values: np.ndarray) -> bool:
    """Return whether bytes pass a two-sided chi-square test of uniformity at 1 in 10,000."""
    counts = np.bincount(values, minlength=256)
    expected = len(values) / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    low, high = chi2.ppf([0.5e-4, 1 - 0.5e-4], df=255)
    return bool(low < statistic < high)


@pytest.mark.parametrize("bits", [32, 48, 64])
def test_vectors_on_the_way_look_uniform_and_alike(bits: int) -> None:
    # All vectors are zero: whatever is seen is mask. Seeded, so it holds once and for all.
    length = 20_000
    kind = word_type(bits)
    words = dict.fromkeys(names_of(5), np.zeros(length, kind))
    heard: list[object] = []
    rehearse(
        terms_of(5, length, bits=bits),
        words,
        {"car-004": "vector"},
        entropy=entropy_of(7),
        overheard=heard.append,
    )
    vectors = [
        np.frombuffer(message.words, np.uint8) for message in heard if isinstance(message, Masked)
    ]
    assert len(vectors) == 5
    for number, vector in enumerate(vectors):
        assert uniform(vector)
        # Differences of two messages, and of a message and itself one byte on, look so, too.
        assert uniform(np.diff(vector))
        assert all(uniform(vector - other) for other in vectors[:number])
    # A test that sees no difference between masks and a ramp would prove nothing.
    assert not uniform(np.arange(length, dtype=kind).view(np.uint8))


def test_without_the_own_masks_the_sum_of_all_messages_is_noise() -> None:
    held = Stopped(count=4, length=5_000)
    summed, _, _ = collect(held.routed, held.masked)
    wrong = (summed.words - held.sum_of(held.names)).view(np.uint8)
    assert uniform(wrong)


def test_messages_say_nothing_of_a_vehicle_by_their_length() -> None:
    small = []
    large = []
    zero = dict.fromkeys(names_of(3), np.zeros(8, "<u8"))
    rehearse(terms_of(3, 8), zero, overheard=small.append)
    rehearse(terms_of(3, 8), random_words(3, 8), overheard=large.append)

    def sizes(heard: list) -> list[int]:
        return [len(repr(type(message))) + sum(map(len, _parts(message))) for message in heard]

    assert sizes(small) == sizes(large)


def _parts(message: object) -> list[bytes]:
    parts: list[bytes] = []
    for value in vars(message).values():
        parts += value if isinstance(value, tuple) else [value]
    return [part for part in parts if not isinstance(part, bool)]


def test_fresh_keys_every_time_make_other_messages_of_the_same_vectors() -> None:
    first = []
    second = []
    words = random_words(3, 4)
    for heard in (first, second):
        rehearse(terms_of(3), words, overheard=heard.append)
    masked = [{m.words for m in h if isinstance(m, Masked)} for h in (first, second)]
    assert not masked[0] & masked[1]


def test_survivors_reveal_seeds_and_nothing_else_where_nobody_drops_out() -> None:
    held = Stopped(count=4)
    for name, revealed in held.revealed(held.names).items():
        assert [len(share) for share in revealed.shares] == [33] * 4
        assert revealed.shares == tuple(text[:33] for text in held.sent[name].shares)


def test_the_masks_of_one_exchange_are_no_use_in_another() -> None:
    terms = terms_of(3)
    other = terms_of(3, number=2)
    assert isinstance(terms, SecureTerms) and terms.digest != other.digest
    assert (own_mask(terms, bytes(32), "a") != own_mask(other, bytes(32), "a")).all()
    assert (own_mask(terms, bytes(32), "a") != own_mask(terms, bytes(32), "b")).all()


def test_more_answers_than_needed_change_nothing() -> None:
    held = Stopped(count=5)
    summed, _, _ = collect(held.routed, held.masked)
    revealed = held.revealed(held.names)
    every = server.unmask(summed, revealed, {})
    few = server.unmask(summed, {name: revealed[name] for name in held.names[-4:]}, {})
    assert (every == few).all() and (every == held.sum_of(held.names)).all()
