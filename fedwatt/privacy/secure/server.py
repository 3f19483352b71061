"""The server of secure aggregation: forwards messages, adds masked vectors, removes masks.

Every function takes what arrived in time, by the names under which the transport knows the senders,
leaves out what is not in order, and enters into `rejected` what and why. It stops the exchange
where fewer than the threshold are left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from fedwatt.errors import DataError, RunError
from fedwatt.metrics.sums import Words, reduced, unpacked, word_type
from fedwatt.privacy.secure.graph import Graph
from fedwatt.privacy.secure.keys import (
    KEY_BYTES,
    SEAL_BYTES,
    commitment,
    is_public_key,
    own_mask,
    pair_mask,
    public_key,
)
from fedwatt.privacy.secure.messages import (
    Advert,
    Agreed,
    Agreements,
    Inbox,
    Masked,
    NeighbourRoster,
    Revealed,
    Shares,
    Survivors,
    bits_of,
)
from fedwatt.privacy.secure.shamir import SHARE_BYTES, combine, weights_at_zero
from fedwatt.privacy.secure_settings import SecureTerms

Message = TypeVar("Message", Advert, Shares, Masked, Agreed, Revealed)
Rejected = dict[str, str]
"""Why a vehicle's message was left out, by its name."""

SEALED_BYTES = 2 * SHARE_BYTES + SEAL_BYTES
WRONG_SHARES = "shares are missing or of a wrong length"


class NoTotal(RunError):
    """An exchange that ends without a sum."""


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """The exchange once keys are there."""

    terms: SecureTerms
    adverts: Mapping[str, Advert]
    """By name, ascending."""
    graph: Graph

    def roster(self, name: str) -> NeighbourRoster:
        """Return the keys of the others that a vehicle is sent."""
        near = [self.adverts[other] for other in self.graph.neighbours(name)]
        return NeighbourRoster(
            exchange=self.terms.digest,
            vehicles=self.graph.names,
            mask_keys=tuple(advert.mask_key for advert in near),
            cipher_keys=tuple(advert.cipher_key for advert in near),
            publics=tuple(advert.public for advert in near),
            vouchers=tuple(advert.voucher for advert in near),
            signatures=tuple(advert.signature for advert in near),
        )


@dataclass(frozen=True, kw_only=True)
class Routed:
    """The exchange once keys are shared."""

    keyed: Keyed
    commitments: Mapping[str, bytes]
    """By the vehicles whose shares were passed on, ascending."""

    def sharing(self, name: str) -> list[str]:
        """Return the vehicles of a group that shared their keys, ascending."""
        return [other for other in self.keyed.graph.group(name) if other in self.commitments]


@dataclass(frozen=True, kw_only=True)
class Summed:
    """The exchange once vectors have arrived: their sum, still masked."""

    routed: Routed
    survivors: tuple[str, ...]
    words: Words = field(repr=False)


def make_roster(terms: SecureTerms, adverts: Mapping[str, Advert], rejected: Rejected) -> Keyed:
    """Return the participants with their keys."""
    seen: set[bytes] = set()

    def fault(advert: Advert) -> str:
        keys = {advert.mask_key, advert.cipher_key}
        if not all(is_public_key(key) for key in keys):
            return "a key is none"
        if len(keys) < 2 or keys & seen:
            return "a key occurs twice"
        seen.update(keys)
        return ""

    good = _sorted_out(terms, adverts, None, fault, "advertised keys", rejected)
    return Keyed(terms=terms, adverts=good, graph=Graph(terms, tuple(good)))


def route(
    keyed: Keyed, shares: Mapping[str, Shares], rejected: Rejected
) -> tuple[Routed, dict[str, Inbox]]:
    """Return the shares routed to each vehicle that shared its keys."""
    terms = keyed.terms
    graph = keyed.graph

    def fault(sent: Shares) -> str:
        lengths = [len(sealed) for sealed in sent.ciphertexts]
        complete = lengths == [SEALED_BYTES] * len(graph.neighbours(sent.vehicle))
        return "" if complete else WRONG_SHARES

    good = _sorted_out(terms, shares, graph.names, fault, "shared their keys", rejected)
    to = {
        name: dict(zip(graph.neighbours(name), sent.ciphertexts, strict=True))
        for name, sent in good.items()
    }
    inboxes = {}
    for name in good:
        senders = tuple(other for other in graph.neighbours(name) if other in good)
        sealed = tuple(to[other][name] for other in senders)
        inboxes[name] = Inbox(exchange=terms.digest, senders=senders, ciphertexts=sealed)
    commitments = {name: sent.commitment for name, sent in good.items()}
    return Routed(keyed=keyed, commitments=commitments), inboxes


class Adding:
    """The sum of masked vectors; each is added as it comes and then let go."""

    def __init__(self, routed: Routed, rejected: Rejected) -> None:
        terms = routed.keyed.terms
        self.routed = routed
        self.arrived = set[str]()
        self.rejected = rejected
        self.words = np.zeros(terms.length, dtype=word_type(terms.bits))

    def add(self, name: str, sent: Masked) -> None:
        """Add the vector of the vehicle `name`, or note why it is none of this sum."""
        terms = self.routed.keyed.terms
        size = len(sent.words)
        trouble = _trouble(terms, name, sent, set(self.routed.commitments))
        if not trouble and size != terms.length * terms.bits // 8:
            trouble = f"{size} bytes are not {terms.length} words"
        if not trouble and name in self.arrived:
            trouble = "sent twice"
        if trouble:
            self.rejected[name] = trouble
            return
        self.arrived.add(name)
        self.words = self.words + unpacked(sent.words, terms.bits)

    def collected(self) -> tuple[Summed, Survivors]:
        """Return the sum of the vectors that arrived, and who they came from; NoTotal if too few
        did.
        """
        terms = self.routed.keyed.terms
        good = tuple(sorted(self.arrived))
        _refuse_few(terms, len(good), terms.threshold, "sent their vectors")
        arrived = bits_of(self.routed.keyed.graph.names, frozenset(good))
        survivors = Survivors(exchange=terms.digest, arrived=arrived)
        summed = Summed(routed=self.routed, survivors=good, words=self.words)
        return summed, survivors


def pass_on(
    summed: Summed, agreed: Mapping[str, Agreed], rejected: Rejected
) -> dict[str, Agreements]:
    """Return which of its neighbours agreed to the survivors, for each that agreed itself."""
    keyed = summed.routed.keyed
    good = _sorted_out(
        keyed.terms,
        agreed,
        summed.survivors,
        lambda sent: "",
        "agreed to the survivors",
        rejected,
        least=keyed.graph.signatures_needed,
    )
    passed = {}
    for name in good:
        signers = tuple(other for other in keyed.graph.neighbours(name) if other in good)
        signatures = tuple(good[other].signature for other in signers)
        digest = keyed.terms.digest
        passed[name] = Agreements(exchange=digest, signers=signers, signatures=signatures)
    return passed


def unmask(summed: Summed, revealed: Mapping[str, Revealed], rejected: Rejected) -> Words:
    """Return the sum of the survivors' vectors, [length]: the one thing the server learns of
    them.
    """
    routed = summed.routed
    keyed = summed.routed.keyed
    terms = keyed.terms
    graph = keyed.graph

    def fault(sent: Revealed) -> str:
        lengths = [len(share) for share in sent.shares]
        complete = lengths == [SHARE_BYTES] * len(routed.sharing(sent.vehicle))
        return "" if complete else WRONG_SHARES

    did = "revealed their shares"
    least = graph.shares_needed
    good = _sorted_out(terms, revealed, summed.survivors, fault, did, rejected, least=least)
    revealed_shares = {
        name: dict(zip(routed.sharing(name), sent.shares, strict=True))
        for name, sent in good.items()
    }
    survivors = set(summed.survivors)
    total = summed.words
    for name in routed.commitments:
        secret = _secret(summed, name, revealed_shares)
        if name in survivors:
            total = total - own_mask(terms, secret, name)
            continue
        for other in graph.neighbours(name):
            if other in survivors:
                # What `other` added for its pair with the one that dropped out is its negative.
                key = keyed.adverts[other].mask_key
                total = total + pair_mask(terms, secret, key, name, other)
    return reduced(total, terms.bits)


def _secret(
    summed: Summed,
    name: str,
    revealed_shares: Mapping[str, Mapping[str, bytes]],
) -> bytes:
    """Return the seed of a survivor, or the mask key of one that dropped out, from its group's
    shares.
    """
    routed = summed.routed
    keyed = summed.routed.keyed
    terms = keyed.terms
    graph = keyed.graph
    survived = name in summed.survivors
    what = "seed" if survived else "mask key"
    places = {holder: place for place, holder in enumerate(graph.group(name), start=1)}
    chosen = [holder for holder in places if holder in revealed_shares][: graph.shares_needed]
    if len(chosen) < graph.shares_needed:
        raise NoTotal(
            f"Secure sum {terms.number} of run '{terms.run}' ends here: {len(chosen)} neighbours "
            f"of {name} revealed its {what}, and {graph.shares_needed} are needed."
        )
    weights = _weights(tuple(places[holder] for holder in chosen))
    try:
        secret = combine(weights, [revealed_shares[holder][name] for holder in chosen])
    except DataError:
        secret = bytes(KEY_BYTES)
    is_right = (
        commitment(terms, name, secret) == routed.commitments[name]
        if survived
        else public_key(secret) == keyed.adverts[name].mask_key
    )
    if not is_right:
        raise NoTotal(
            f"The shares of {name}'s {what} do not belong together: {', '.join(chosen)} or {name} "
            "sent a wrong one. The exchange has no sum; repeat it under a higher number."
        )
    return secret


_weights = lru_cache(maxsize=1024)(weights_at_zero)


def _sorted_out(
    terms: SecureTerms,
    messages: Mapping[str, Message],
    senders: tuple[str, ...] | None,
    fault: Callable[[Message], str],
    did: str,
    rejected: Rejected,
    *,
    least: int = 0,
) -> dict[str, Message]:
    """Return messages of this exchange by sender, ascending.

    NoTotal if fewer than `least` (0: the threshold) `did` what they were asked to.
    """
    good = {}
    allowed = None if senders is None else set(senders)
    for name in sorted(messages):
        message = messages[name]
        if trouble := _trouble(terms, name, message, allowed) or fault(message):
            rejected[name] = trouble
        else:
            good[name] = message
    _refuse_few(terms, len(good), least or terms.threshold, did)
    return good


def _trouble(terms: SecureTerms, name: str, message: Any, allowed: set[str] | None) -> str:
    """Return the reason why a message that came from `name` is none of this exchange; empty if it
    is.
    """
    if message.exchange != terms.digest:
        return "of another exchange"
    if message.vehicle != name:
        return f"sent in the name of {message.vehicle}"
    return "out of turn" if allowed is not None and name not in allowed else ""


def _refuse_few(terms: SecureTerms, good: int, least: int, did: str) -> None:
    """Raise NoTotal if fewer than `least` vehicles `did` what they were asked to."""
    if good < least:
        raise NoTotal(
            f"Secure sum {terms.number} of run '{terms.run}' ends here: {good} vehicles "
            f"{did}, and {least} of {terms.called} are needed."
        )
