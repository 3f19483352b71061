"""The server's part of an exchange: it passes messages on, adds vectors up and takes masks away.

Every function takes what arrived in time, by the names under which the transport knows the senders,
leaves out what is not in order, and says what and why (`rejected`). It stops the exchange where
fewer than the threshold are left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fedwatt.errors import DataError, RunError
from fedwatt.privacy.fixed_point import Words
from fedwatt.privacy.secure.agreement import KEY_BYTES, SEAL_BYTES, is_public_key, public_key
from fedwatt.privacy.secure.masks import commitment, own_mask, pair_mask
from fedwatt.privacy.secure.messages import (
    Advert,
    Inbox,
    Masked,
    Revealed,
    Roster,
    Shares,
    Survivors,
)
from fedwatt.privacy.secure.shamir import SHARE_BYTES, combine, weights_at_zero
from fedwatt.privacy.secure_settings import Terms

Message = TypeVar("Message", Advert, Shares, Masked, Revealed)
Rejected = dict[str, str]  # why a vehicle's message was left out, by its name

SEALED_BYTES = 2 * SHARE_BYTES + SEAL_BYTES
WRONG_SHARES = "shares are missing or of a wrong length"


class NoTotal(RunError):
    """An exchange that ends without a sum, and whose messages its last step left out, and why."""

    def __init__(self, reason: str, rejected: Rejected) -> None:
        super().__init__(reason)
        self.rejected = rejected


@dataclass(frozen=True, kw_only=True)
class Routed:
    """The exchange once keys are shared."""

    terms: Terms
    roster: Roster
    sharing: tuple[str, ...]  # vehicles whose shares were passed on
    commitments: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Summed:
    """The exchange once vectors have arrived: their sum, still masked."""

    routed: Routed
    survivors: tuple[str, ...]
    words: Words = field(repr=False)


def make_roster(terms: Terms, adverts: Mapping[str, Advert]) -> tuple[Roster, Rejected]:
    """Whose keys everybody is sent."""
    seen: set[bytes] = set()

    def fault(advert: Advert) -> str:
        keys = {advert.mask_key, advert.cipher_key}
        if not all(is_public_key(key) for key in keys):
            return "a key is none"
        if len(keys) < 2 or keys & seen:
            return "a key occurs twice"
        seen.update(keys)
        return ""

    good, rejected = _sorted_out(terms, adverts, None, fault, "advertised keys")
    roster = Roster(
        exchange=terms.digest,
        vehicles=tuple(good),
        mask_keys=tuple(advert.mask_key for advert in good.values()),
        cipher_keys=tuple(advert.cipher_key for advert in good.values()),
    )
    return roster, rejected


def route(
    terms: Terms, roster: Roster, shares: Mapping[str, Shares]
) -> tuple[Routed, dict[str, Inbox], Rejected]:
    """What each vehicle that shared its keys is sent of the others' shares."""

    def fault(sent: Shares) -> str:
        lengths = [len(sealed) for sealed in sent.ciphertexts]
        whole = lengths == [SEALED_BYTES] * (len(roster.vehicles) - 1)
        return "" if whole else WRONG_SHARES

    good, rejected = _sorted_out(terms, shares, roster.vehicles, fault, "shared their keys")
    place = _places(roster)
    inboxes = {}
    for name in good:
        others = tuple(other for other in good if other != name)
        # A sender has no ciphertext for itself, so those behind it are one place further on.
        sealed = (
            good[other].ciphertexts[place[name] - (place[other] < place[name])] for other in others
        )
        inboxes[name] = Inbox(exchange=terms.digest, senders=others, ciphertexts=tuple(sealed))
    commitments = tuple(sent.commitment for sent in good.values())
    routed = Routed(terms=terms, roster=roster, sharing=tuple(good), commitments=commitments)
    return routed, inboxes, rejected


def collect(routed: Routed, masked: Mapping[str, Masked]) -> tuple[Summed, Survivors, Rejected]:
    """The sum of the vectors that arrived, and who they came from."""
    terms = routed.terms
    kind = np.dtype(f"<u{terms.bits // 8}")

    def fault(sent: Masked) -> str:
        whole = len(sent.words) == terms.length * kind.itemsize
        return "" if whole else f"{len(sent.words)} bytes are not {terms.length} words"

    good, rejected = _sorted_out(terms, masked, routed.sharing, fault, "sent their vectors")
    total = np.zeros(terms.length, dtype=kind)
    for sent in good.values():
        total = total + np.frombuffer(sent.words, dtype=kind)
    survivors = Survivors(exchange=terms.digest, vehicles=tuple(good))
    return Summed(routed=routed, survivors=survivors.vehicles, words=total), survivors, rejected


def unmask(summed: Summed, revealed: Mapping[str, Revealed]) -> tuple[Words, Rejected]:
    """The sum of the survivors' vectors, [length]: the one thing the server learns of them."""
    routed = summed.routed
    terms, roster = routed.terms, routed.roster

    def fault(sent: Revealed) -> str:
        whole = [len(share) for share in sent.shares] == [SHARE_BYTES] * len(routed.sharing)
        return "" if whole else WRONG_SHARES

    good, rejected = _sorted_out(terms, revealed, summed.survivors, fault, "revealed their shares")
    place_of, survivors = _places(roster), set(summed.survivors)
    chosen = list(good)[: terms.threshold]
    weights = weights_at_zero([place_of[name] + 1 for name in chosen])
    total = summed.words
    for place, name in enumerate(routed.sharing):
        survived = name in survivors
        try:
            secret = combine(weights, [good[teller].shares[place] for teller in chosen])
        except DataError:
            secret = bytes(KEY_BYTES)
        mask_key = roster.mask_keys[place_of[name]]
        known = (
            commitment(terms, name, secret) == routed.commitments[place]
            if survived
            else public_key(secret) == mask_key
        )
        if not known:
            what = "seed" if survived else "mask key"
            raise NoTotal(
                f"The shares of {name}'s {what} do not belong together: {', '.join(chosen)} or "
                f"{name} sent a wrong one. The exchange has no sum; repeat it under a higher "
                "number.",
                rejected,
            )
        if survived:
            total = total - own_mask(terms, secret, name)
            continue
        for other in summed.survivors:
            # What `other` added for its pair with the one that dropped out is its negative.
            key = roster.mask_keys[place_of[other]]
            total = total + pair_mask(terms, secret, key, name, other)
    return total, rejected


def _places(roster: Roster) -> dict[str, int]:
    return {name: place for place, name in enumerate(roster.vehicles)}


def _sorted_out(
    terms: Terms,
    messages: Mapping[str, Message],
    known: tuple[str, ...] | None,
    fault: Callable[[Message], str],
    did: str,
) -> tuple[dict[str, Message], Rejected]:
    """Messages of this exchange by their senders' names, ascending, and why others are none.

    NoTotal if too few `did` what they were asked to.
    """
    good, rejected = {}, {}
    for name in sorted(messages):
        message = messages[name]
        if message.exchange != terms.digest:
            rejected[name] = "of another exchange"
        elif message.vehicle != name:
            rejected[name] = f"sent in the name of {message.vehicle}"
        elif known is not None and name not in known:
            rejected[name] = "out of turn"
        elif trouble := fault(message):
            rejected[name] = trouble
        else:
            good[name] = message
    if len(good) < terms.threshold:
        raise NoTotal(
            f"Secure sum {terms.number} of run '{terms.run}' ends here: {len(good)} vehicles "
            f"{did}, and {terms.threshold} of {terms.called} are needed.",
            rejected,
        )
    return good, rejected
