"""Exchanges for the tests: repeatable secrets, vehicles' names, and one stopped half-way."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedwatt.metrics.sums import Words, unpacked
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.messages import (
    Agreements,
    Inbox,
    Masked,
    Revealed,
    Shares,
    Survivors,
    bits_of,
)
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


def entropy_of(seed: int) -> Callable[[int], bytes]:
    """Bytes that are the same in every run; for tests only."""
    return np.random.default_rng(seed).bytes


def names_of(count: int) -> list[str]:
    return [f"car-{k:03d}" for k in range(count)]


def terms_of(called: int, length: int = 4, **changes: object) -> SecureTerms:
    threshold = SecureSettings().survivors_needed(called)
    made = {"run": "a", "number": 1, "called": called, "threshold": threshold, "length": length}
    return SecureTerms(**(made | changes))


def random_words(count: int, length: int, bits: int = 64, seed: int = 0) -> dict[str, Words]:
    """Vectors over the whole range, so that sums wrap."""
    rng = np.random.default_rng(seed)
    return {name: unpacked(rng.bytes(length * bits // 8), bits) for name in names_of(count)}


class Stopped:
    """An exchange of vehicles that all answer, up to where their vectors have arrived."""

    def __init__(self, count: int = 4, length: int = 4, terms: SecureTerms | None = None) -> None:
        self.terms = terms or terms_of(count, length)
        self.names = names_of(count)
        self.words = random_words(count, self.terms.length, self.terms.bits)
        entropy = entropy_of(count)
        self.advertised: dict[str, Advertised] = {}
        self.adverts = {}
        for name in self.names:
            self.advertised[name], self.adverts[name] = advertise(self.terms, name, entropy=entropy)
        self.keyed = server.make_roster(self.terms, self.adverts, {})
        self.shared: dict[str, Shared] = {}
        self.shares: dict[str, Shares] = {}
        for name in self.names:
            self.shared[name], self.shares[name] = share_keys(
                self.advertised[name], self.keyed.roster(name), entropy=entropy
            )
        self.inboxes: dict[str, Inbox]
        self.routed, self.inboxes = server.route(self.keyed, self.shares, {})
        self.sent: dict[str, Sent] = {}
        self.masked = {}
        for name in self.names:
            self.sent[name], self.masked[name] = mask_input(
                self.shared[name], self.inboxes[name], self.words[name]
            )

    def sum_of(self, names: Sequence[str]) -> Words:
        return sum((self.words[name] for name in names), np.zeros_like(self.words[self.names[0]]))

    def told(self, *names: str) -> Survivors:
        """The message that these survived."""
        return Survivors(
            exchange=self.terms.digest, arrived=bits_of(tuple(self.names), frozenset(names))
        )

    def revealed(self, alive: Sequence[str], telling: Sequence[str] = ()) -> dict[str, Revealed]:
        """Return what the `telling` vehicles (by default all alive) reveal once all alive agree."""
        states = {}
        agreed = {}
        for name in alive:
            states[name], agreed[name] = agree(self.sent[name], self.told(*alive))
        result = {}
        for name in telling or alive:
            entries = tuple(other for other in alive if other != name)
            signatures = tuple(agreed[other].signature for other in entries)
            agreements = Agreements(
                exchange=self.terms.digest,
                signers=entries,
                signatures=signatures,
            )
            result[name] = reveal(states[name], agreements)[1]
        return result


def collect(
    routed: server.Routed, masked: Mapping[str, Masked]
) -> tuple[server.Summed, Survivors, server.Rejected]:
    """Return the sum of vectors that are all here."""
    rejected: server.Rejected = {}
    adding = server.Adding(routed, rejected)
    for name, sent in masked.items():
        adding.add(name, sent)
    return *adding.collected(), rejected
