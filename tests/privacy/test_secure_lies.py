"""A server that lies: keys of its own making, two stories about survivors, and large sums."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from fedwatt.deploy.plan.certificates import SERVER, VEHICLE, Owner, owner_certificate
from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.vehicle.handler import Credentials
from fedwatt.errors import DataError
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.graph import Graph, degree
from fedwatt.privacy.secure.keys import CURVE, Identity, Trust, public_bytes
from fedwatt.privacy.secure.messages import Agreements
from fedwatt.privacy.secure.vehicle import advertise, agree, mask_input, reveal, share_keys
from fedwatt.runs.config import RunConfig
from tests.privacy.exchanges import collect, names_of, random_words, terms_of
from tests.privacy.rehearsal import rehearse


def owner(number: int) -> Owner:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return Owner(key, owner_certificate(key))


def identity(name: str, number: int, owner: Owner) -> Identity:
    key = ec.derive_private_key(1000 + number, CURVE)
    certificate = owner.issue(name, VEHICLE, key.public_key(), 10)
    return Identity(key, certificate.public_bytes(Encoding.DER))


def trust_in(owner: Owner, revoked: frozenset[int] = frozenset()) -> Trust:
    now = datetime.now(UTC)
    key = ec.derive_private_key(999, CURVE)
    certificate = owner.issue("me", VEHICLE, key.public_key(), 10)
    plan = Plan(b"", RunConfig(), revoked, (now, now))
    return Credentials(key, certificate, owner.certificate).trust(plan)


OWNER = owner(7)
TRUST = trust_in(OWNER)


def identities(count: int) -> dict[str, Identity]:
    return {name: identity(name, number, OWNER) for number, name in enumerate(names_of(count))}


class Signed:
    """Four vehicles that sign, up to where their keys are known."""

    def __init__(self) -> None:
        self.terms = terms_of(4)
        self.who = identities(4)
        self.states = {}
        self.adverts = {}
        for name, liar in self.who.items():
            self.states[name], self.adverts[name] = advertise(self.terms, name, identity=liar)
        self.keyed = server.make_roster(self.terms, self.adverts, {})


@pytest.fixture(scope="module")
def signed() -> Signed:
    return Signed()


def test_signed_vehicles_make_the_same_sum() -> None:
    words = random_words(4, 3)
    total, _ = rehearse(terms_of(4, 3), words, identities=identities(4), trust=TRUST)
    assert (total == sum(words.values())).all()


@pytest.mark.parametrize(
    ("role", "revoked", "reason"),
    [
        (SERVER, (), "not that of a vehicle"),
        (VEHICLE, (5,), "the certificate of car-001 is revoked"),
        (VEHICLE, (), ""),
    ],
)
def test_certificates_count_by_role_and_until_they_are_revoked(
    role: str, revoked: tuple[int, ...], reason: str
) -> None:
    key = ec.derive_private_key(1001, CURVE)
    certificate = OWNER.issue("car-001", role, key.public_key(), 10)
    serials = frozenset(certificate.serial_number for _ in revoked)
    check = trust_in(OWNER, serials).check_voucher
    arguments = ("car-001", public_bytes(key.public_key()), certificate.public_bytes(Encoding.DER))
    if not reason:
        check(*arguments)
        with pytest.raises(DataError, match="is not that of its certificate"):
            check("car-002", *arguments[1:])
        return
    with pytest.raises(DataError, match=reason):
        check(*arguments)


def test_a_server_that_puts_its_own_keys_into_a_roster_is_found_out(signed: Signed) -> None:
    me, other = names_of(2)
    roster = signed.keyed.roster(me)
    mine = advertise(signed.terms, other, identity=identity(other, 99, owner(8)))
    forged = {
        "did not sign": {"mask_keys": (mine[1].mask_key, *roster.mask_keys[1:])},
        "not signed by this fleet's owner": {
            "mask_keys": (mine[1].mask_key, *roster.mask_keys[1:]),
            "cipher_keys": (mine[1].cipher_key, *roster.cipher_keys[1:]),
            "publics": (mine[1].public, *roster.publics[1:]),
            "vouchers": (mine[1].voucher, *roster.vouchers[1:]),
            "signatures": (mine[1].signature, *roster.signatures[1:]),
        },
    }
    for reason, changes in forged.items():
        with pytest.raises(DataError, match=reason):
            share_keys(signed.states[me], replace(roster, **changes), trust=TRUST)
    unsigned = replace(roster, signatures=(b"",) * 3)
    with pytest.raises(DataError, match="did not sign"):
        share_keys(signed.states[me], unsigned, trust=TRUST)


def test_one_vehicle_under_two_names_is_found_out(signed: Signed) -> None:
    me = names_of(1)[0]
    roster = signed.keyed.roster(me)
    twice = replace(roster, publics=(roster.publics[0], roster.publics[0], roster.publics[2]))
    with pytest.raises(DataError, match="two names"):
        share_keys(signed.states[me], twice, trust=TRUST)


def test_two_stories_about_survivors_reveal_nothing(signed: Signed) -> None:
    # a and b are told that all survived, c and d that a did not: neither side has three of four.
    terms = signed.terms
    names = names_of(4)
    who = signed.who
    a, b, c, d = names
    sent = {}
    masked = {}
    words = random_words(4, terms.length)
    shared = {n: share_keys(signed.states[n], signed.keyed.roster(n), trust=TRUST) for n in names}
    routed, inboxes = server.route(
        signed.keyed, {n: messages[1] for n, messages in shared.items()}, {}
    )
    for name in names:
        sent[name], masked[name] = mask_input(shared[name][0], inboxes[name], words[name])
    _, everybody, _ = collect(routed, masked)
    _, without, _ = collect(routed, {n: masked[n] for n in (b, c, d)})
    stories = {a: everybody, b: everybody, c: without, d: without}
    states = {}
    signatures = {}
    for name, story in stories.items():
        states[name], agreed = agree(sent[name], story, identity=who[name])
        signatures[name] = agreed.signature
    for name in names:
        near = tuple(n for n in names if n != name and (n != a or stories[name] is everybody))
        entries = tuple(signatures[n] for n in near)
        with pytest.raises(DataError, match="did not sign"):
            reveal(
                states[name],
                Agreements(
                    exchange=terms.digest,
                    signers=near,
                    signatures=entries,
                ),
                trust=TRUST,
            )


def test_the_ring_pairs_everybody_with_k_others() -> None:
    names = tuple(names_of(100))
    graph = Graph(terms_of(100), names)
    assert degree(100) == 40
    for name in names:
        near = graph.neighbours(name)
        assert len(near) == 40 and name not in near
        assert all(name in graph.neighbours(other) for other in near)
    other = Graph(terms_of(100, number=2), names)
    assert other.neighbours(names[0]) != graph.neighbours(names[0])  # drawn anew every time


def test_a_hundred_vehicles_of_which_a_fifth_drops_out() -> None:
    words = random_words(100, 3, 48)
    stages = ("nothing", "keys", "shares", "vector", "agreement")
    gone = {name: stages[k % 5] for k, name in enumerate(names_of(100)[::5])}
    total, survivors = rehearse(terms_of(100, 3, bits=48), words, gone)
    assert len(survivors) == 100 - 12
    expected = sum(words[name] for name in survivors) & np.uint64(2**48 - 1)
    assert (total == expected).all()
