"""Refusals of vehicles, omissions of the server, and ends of an exchange."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.keys import seal, unseal
from fedwatt.privacy.secure.messages import (
    Advert,
    Agreements,
    Inbox,
    NeighbourRoster,
    from_plain,
    names_of,
    to_plain,
)
from fedwatt.privacy.secure.shamir import combine, split, weights_at_zero
from fedwatt.privacy.secure.vehicle import (
    Advertised,
    Sent,
    Shared,
    advertise,
    agree,
    mask_input,
    reveal,
    share_keys,
)
from fedwatt.privacy.secure_settings import SecureSettings, SecureTerms
from tests.privacy.exchanges import Stopped, collect, entropy_of, terms_of


@pytest.fixture(scope="module")
def held() -> Stopped:
    """Four vehicles, threshold three; all vectors have arrived."""
    return Stopped(count=4)


# ------------------------------------------------------------------- a server that asks too much
def test_both_shares_of_one_vehicle_are_refused(held: Stopped) -> None:
    a, b, c, _ = held.names
    state, first = agree(held.sent[a], held.told(*held.names))
    # Naming d as dropped out after all would reveal its mask key besides its seed.
    with pytest.raises(DataError, match="a second set is refused"):
        agree(state, held.told(a, b, c))
    again, repeated = agree(state, held.told(*held.names))
    assert repeated == first and again == state


def test_asking_every_vehicle_something_else_is_not_enough(held: Stopped) -> None:
    # A server that tells half of the vehicles that d survived and the others that it did not: three
    # of four must have agreed to the same, and two of them cannot be told apart from none.
    a, b, c, d = held.names
    states = {name: agree(held.sent[name], held.told(a, b, c, d))[0] for name in (a, b)}
    agree(held.sent[c], held.told(a, b, c))
    two = Agreements(exchange=held.terms.digest, signers=(b,), signatures=(b"",))
    with pytest.raises(DataError, match="too few neighbours"):
        reveal(states[a], two)
    with pytest.raises(SettingError, match="above half of 4"):
        replace(held.terms, threshold=2)


def test_a_vehicle_that_did_not_survive_or_too_few_survivors_are_not_answered(held) -> None:
    a, b, c, d = held.names
    with pytest.raises(DataError, match="without itself"):
        agree(held.sent[d], held.told(a, b, c))
    with pytest.raises(DataError, match=r"2 vehicles .* at least 3"):
        agree(held.sent[a], held.told(a, b))
    with pytest.raises(DataError, match="other numbers"):
        agree(held.sent[a], replace(held.told(a, b, c), arrived=bytes(2)))
    alone = replace(held.sent[a], sharing=(a, b, c))
    with pytest.raises(DataError, match="never shared"):
        agree(alone, held.told(a, b, c, d))


def test_nothing_is_revealed_before_survivors_are_agreed_to(held: Stopped) -> None:
    a, *names = held.names
    signatures = (b"",) * 3
    agreements = Agreements(
        exchange=held.terms.digest,
        signers=tuple(names),
        signatures=signatures,
    )
    with pytest.raises(DataError, match="out of turn"):
        reveal(held.sent[a], agreements)


# ------------------------------------------------------------------------ replays and wrong turns
def test_a_round_is_not_repeated_under_its_number() -> None:
    terms = terms_of(3, number=7)
    advertise(terms, "a", after=6)
    for after in (7, 8):
        with pytest.raises(DataError, match="higher number"):
            advertise(terms, "a", after=after)


def test_messages_of_another_round_do_not_fit(held: Stopped) -> None:
    later = Stopped(4, terms=terms_of(4, number=2))
    a = held.names[0]
    with pytest.raises(DataError, match="another exchange"):
        share_keys(later.advertised[a], held.keyed.roster(a))
    with pytest.raises(DataError, match="another exchange"):
        mask_input(later.shared[a], held.inboxes[a], held.words[a])
    with pytest.raises(DataError, match="another exchange"):
        agree(later.sent[a], held.told(*held.names))
    # With the digest exchanged, the sealed shares themselves do not.
    forged = replace(held.inboxes[a], exchange=later.terms.digest)
    with pytest.raises(DataError, match="another exchange"):
        mask_input(later.shared[a], forged, held.words[a])
    replayed = later.masked | {a: held.masked[a]}
    summed, survivors, rejected = collect(later.routed, replayed)
    assert rejected == {a: "of another exchange"} and a not in summed.survivors
    assert names_of(tuple(held.names), survivors.arrived) == summed.survivors


def test_stages_come_in_their_order_and_once(held: Stopped) -> None:
    a = held.names[0]
    with pytest.raises(DataError, match="'Shared', not 'Advertised'"):
        share_keys(held.shared[a], held.keyed.roster(a))
    with pytest.raises(DataError, match="'Sent', not 'Shared'"):
        mask_input(held.sent[a], held.inboxes[a], held.words[a])
    with pytest.raises(DataError, match="'Shared', not 'Sent'"):
        agree(held.shared[a], held.told(*held.names))


# ---------------------------------------------------------------------------------- altered keys
def test_rosters_with_repeated_missing_or_foreign_keys_are_refused(held: Stopped) -> None:
    a = held.names[0]
    roster = held.keyed.roster(a)
    state = held.advertised[a]
    mask_keys, _, *remainder = roster.mask_keys
    bad = [
        ("occur twice", replace(roster, mask_keys=(mask_keys, mask_keys, *remainder))),
        ("occur twice", replace(roster, mask_keys=roster.cipher_keys)),
        ("occur twice", replace(roster, mask_keys=roster.mask_keys[:-1])),
        (
            "occur twice",
            replace(roster, mask_keys=(held.adverts[a].mask_key, mask_keys, *remainder)),
        ),
        ("without itself", replace(roster, vehicles=("x", *roster.vehicles[1:]))),
        ("without itself", replace(roster, vehicles=roster.vehicles[::-1])),
    ]
    for message, altered in bad:
        with pytest.raises(DataError, match=message):
            share_keys(state, altered)
    with pytest.raises(DataError, match="2 vehicles"):
        share_keys(state, replace(roster, vehicles=roster.vehicles[:2]))


def test_the_server_leaves_out_repeated_and_unusable_keys() -> None:
    terms = terms_of(5)
    names = ("a", "b", "c", "d", "e")
    adverts = {name: advertise(terms, name)[1] for name in names}
    adverts["b"] = replace(adverts["b"], mask_key=adverts["a"].mask_key)
    rejected: server.Rejected = {}
    keyed = server.make_roster(terms, adverts, rejected)
    assert rejected == {"b": "a key occurs twice"} and keyed.graph.names == ("a", "c", "d", "e")
    for key in (bytes(32), b"short"):
        adverts["b"] = replace(adverts["b"], mask_key=key)
        rejected.clear()
        server.make_roster(terms, adverts, rejected)
        assert rejected == {"b": "a key is none"}
    adverts["b"] = adverts["a"]
    del adverts["c"]
    rejected.clear()
    with pytest.raises(server.NoTotal, match="3 vehicles advertised keys, and 4 of 5"):
        server.make_roster(terms, adverts, rejected)
    assert rejected == {"b": "sent in the name of a"}


def test_a_key_of_small_order_agrees_on_nothing(held: Stopped) -> None:
    # All-zero shared secrets would be known to everybody.
    state = held.advertised["car-000"]
    roster = held.keyed.roster("car-000")
    weak = replace(roster, cipher_keys=(*roster.cipher_keys[:-1], bytes(32)))
    with pytest.raises(DataError, match="is none"):
        share_keys(state, weak)


# ------------------------------------------------------------------------------- altered messages
def test_altered_and_misdirected_shares_are_noticed(held: Stopped) -> None:
    a, b = held.names[:2]
    inbox = held.inboxes[a]
    first, *remainder = inbox.ciphertexts
    broken = bytes([*first[:20], first[20] ^ 1, *first[21:]])
    for ciphertexts in (
        (broken, *remainder),
        (b"", *remainder),
        (remainder[0], first, *remainder[1:]),
    ):
        with pytest.raises(DataError, match="altered on its way"):
            mask_input(held.shared[a], replace(inbox, ciphertexts=ciphertexts), held.words[a])
    with pytest.raises(DataError, match="altered on its way"):
        mask_input(
            held.shared[b],
            replace(held.inboxes[b], senders=(a, *held.names[2:]), ciphertexts=inbox.ciphertexts),
            held.words[b],
        )
    with pytest.raises(DataError, match="not its neighbours"):
        stranger = replace(inbox, senders=("bob", *inbox.senders[1:]))
        mask_input(held.shared[a], stranger, held.words[a])
    with pytest.raises(DataError, match="too few neighbours"):
        mask_input(
            held.shared[a],
            Inbox(exchange=inbox.exchange, senders=(), ciphertexts=()),
            held.words[a],
        )


def test_words_of_64_bits_are_not_cut_to_48() -> None:
    # Both are added up in words of 64 bits; cut on their way, a negative sum would become positive.
    held = Stopped(count=3, terms=terms_of(3, bits=48))
    name = "car-000"
    words = held.words["car-000"].copy()
    mask_input(held.shared[name], held.inboxes[name], words)
    words[-1] = np.uint64(2**64 - 5)  # -5 in 64 bits
    with pytest.raises(DataError, match="of 48"):
        mask_input(held.shared[name], held.inboxes[name], words)


def test_a_vector_of_another_length_is_not_sent_and_not_taken(held: Stopped) -> None:
    a = held.names[0]
    for words in (held.words[a][:-1], held.words[a].astype("<u4")):
        with pytest.raises(DataError, match="to add"):
            mask_input(held.shared[a], held.inboxes[a], words)
    short = replace(held.masked[a], words=held.masked[a].words[:-1])
    summed, _, rejected = collect(held.routed, held.masked | {a: short})
    assert rejected == {a: "31 bytes are not 4 words"}
    revealed = held.revealed(summed.survivors)
    assert (server.unmask(summed, revealed, {}) == held.sum_of(held.names[1:])).all()


@pytest.mark.parametrize(("dropped", "what"), [(0, "seed"), (1, "mask key")])
def test_a_wrong_share_ends_the_exchange_with_a_reason(held, dropped: int, what: str) -> None:
    arrived = held.names[: 4 - dropped]
    masked = {name: held.masked[name] for name in arrived}
    summed, _, _ = collect(held.routed, masked)
    revealed = held.revealed(arrived)
    a = held.names[0]
    for wrong in (bytes(33), b"\xff" * 33):
        shares = (*revealed[a].shares[:-1], wrong)
        with pytest.raises(RunError, match=f"car-003's {what} do not belong together"):
            server.unmask(summed, revealed | {a: replace(revealed[a], shares=shares)}, {})
    # One that can be seen to be none is left out, and three of four are enough.
    few = replace(revealed[a], shares=revealed[a].shares[:-1])
    if not dropped:
        rejected: server.Rejected = {}
        total = server.unmask(summed, revealed | {a: few}, rejected)
        assert list(rejected) == [a] and (total == held.sum_of(held.names)).all()


def test_too_few_at_any_stage_end_the_exchange(held: Stopped) -> None:
    some = held.names[:2]
    with pytest.raises(RunError, match="2 vehicles shared their keys, and 3 of 4"):
        server.route(held.keyed, {n: held.shares[n] for n in some}, {})
    with pytest.raises(RunError, match="2 vehicles sent their vectors"):
        collect(held.routed, {n: held.masked[n] for n in some})
    short = {n: replace(held.masked[n], words=b"") for n in held.names[2:]}
    with pytest.raises(server.NoTotal, match="2 vehicles sent their vectors"):
        collect(held.routed, held.masked | short)
    summed, _, _ = collect(held.routed, held.masked)
    with pytest.raises(RunError, match="2 vehicles revealed"):
        server.unmask(summed, held.revealed(held.names, telling=some), {})


def test_shares_out_of_turn_or_cut_short_are_left_out(held: Stopped) -> None:
    a, b = held.names[:2]
    cut = replace(held.shares[a], ciphertexts=held.shares[a].ciphertexts[:-1])
    rejected: server.Rejected = {}
    routed, inboxes = server.route(held.keyed, held.shares | {a: cut}, rejected)
    assert rejected == {a: "shares are missing or of a wrong length"}
    assert a not in inboxes and a not in inboxes[b].senders
    summed, _, rejected = collect(routed, held.masked)
    assert rejected == {a: "out of turn"} and a not in summed.survivors


# --------------------------------------------------------------------------------------- the parts
def test_fewer_shares_than_the_threshold_fit_any_secret() -> None:
    # Two of three shares and any guess at the third give a secret: two say nothing.
    secret = bytes(range(32))
    shares = split(secret, 3, 5, entropy_of(1))
    weights = weights_at_zero([2, 4, 5])
    assert combine(weights, [shares[1], shares[3], shares[4]]) == secret
    guesses = {
        combine(weights, [shares[1], shares[3], guess.to_bytes(33, "little")])
        for guess in range(1, 50)
    }
    assert len(guesses) == 49 and secret not in guesses


def test_shares_of_a_line_by_hand() -> None:
    # f(x) = 5 + 3x: f(1) = 8, f(2) = 11, so 2·8 - 11 = 5.
    secret = (5).to_bytes(32, "little")
    shares = split(secret, 2, 2, lambda count: (3).to_bytes(count, "little"))
    assert [int.from_bytes(share, "little") for share in shares] == [8, 11]
    assert combine(weights_at_zero([1, 2]), shares) == secret


def test_a_seal_holds_only_for_its_sender_receiver_and_exchange() -> None:
    key = bytes(32)
    text = b"two shares"
    sealed = seal(key, text, b"one", "a", "b", entropy_of(2))
    assert unseal(key, sealed, b"one", "a", "b") == text
    for exchange, sender, receiver in ((b"two", "a", "b"), (b"one", "b", "a"), (b"one", "a", "c")):
        with pytest.raises(DataError):
            unseal(key, sealed, exchange, sender, receiver)


def test_messages_and_states_survive_their_way_as_plain_values(held: Stopped) -> None:
    a = held.names[0]
    remaining = [
        (SecureTerms, held.terms),
        (Advert, held.adverts[a]),
        (NeighbourRoster, held.keyed.roster(a)),
        (Inbox, held.inboxes[a]),
        (Advertised, held.advertised[a]),
        (Shared, held.shared[a]),
        (Sent, held.sent[a]),
    ]
    for kind, complete in remaining:
        table = to_plain(complete)
        assert all(type(value) in (int, str, bytes, bool, list) for value in table.values())
        assert from_plain(kind, table) == complete
        with pytest.raises(DataError, match="has no field 'zzz'"):
            from_plain(kind, table | {"zzz": 1})
        for name in table:
            with pytest.raises(DataError, match="lacks its field"):
                from_plain(kind, {n: v for n, v in table.items() if n != name})
            with pytest.raises(DataError, match="wrong type"):
                from_plain(kind, table | {name: 1.5})


def test_no_state_shows_its_secrets(held: Stopped) -> None:
    a = held.names[0]
    for state in (held.advertised[a], held.shared[a], held.sent[a]):
        output = repr(state)
        secrets = [held.shared[a].mask_secret, held.shared[a].cipher_secret, held.shared[a].seed]
        for secret in (*secrets, *held.sent[a].shares):
            assert repr(secret) not in output


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.5),
        ("threshold", 1.1),
        ("delta_limit", 0.0),
        ("upload_limit", np.inf),
        ("windows_limit", 0),
        ("bits", 16),
    ],
)
def test_impossible_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=name):
        SecureSettings(**{name: value})


def test_terms_need_two_vehicles_and_more_than_half() -> None:
    for called in range(2, 40):
        needed = SecureSettings(threshold=0.51).survivors_needed(called)
        assert terms_of(called).threshold <= called and called / 2 < needed <= called
    with pytest.raises(SettingError, match="at least 2"):
        terms_of(1)


def test_a_vector_that_comes_twice_is_added_once(held: Stopped) -> None:
    adding = server.Adding(held.routed, {})
    for name, sent in held.masked.items():
        adding.add(name, sent)
    once = adding.words.copy()
    first = min(held.masked)
    adding.add(first, held.masked[first])
    assert adding.rejected == {first: "sent twice"}
    assert (adding.words == once).all()
