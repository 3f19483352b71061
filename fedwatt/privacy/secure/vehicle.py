"""The vehicle's part of an exchange: four answers, each a function of its state and a message.

Bonawitz et al., CCS 2017, Figure 4, against a server that is curious and follows the protocol:

    advertise    two fresh key pairs
    share_keys   its own seed b_u and its private mask key, each in shares for all others
    mask_input   x_u + PRG(b_u) + Σ_v ± PRG(s_uv)      v: all that shared their keys
    reveal       shares of the survivors' seeds and of the mask keys of those that dropped out

Both kinds of shares of one vehicle would unmask its vector. So a vehicle answers for one set of
survivors only: who is in it is no drop-out, and a second, different set is refused. States hold
secrets: keep them in memory, store the new one before the answer is sent, and never go back to an
old one.
"""

import os
from dataclasses import dataclass, field, replace

import numpy as np

from fedwatt.errors import DataError
from fedwatt.privacy.fixed_point import Words
from fedwatt.privacy.secure.agreement import KEY_BYTES, agreed_key, public_key, seal, unseal
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
from fedwatt.privacy.secure.shamir import SHARE_BYTES, Entropy, split
from fedwatt.privacy.secure_settings import Terms


@dataclass(frozen=True, kw_only=True)
class Advertised:
    """State after `advertise`."""

    terms: Terms
    vehicle: str
    mask_secret: bytes = field(repr=False)
    cipher_secret: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """State after `share_keys`."""

    terms: Terms
    vehicle: str
    roster: Roster
    mask_secret: bytes = field(repr=False)
    cipher_secret: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    own_shares: bytes = field(repr=False)  # the vehicle's shares of its own two secrets


@dataclass(frozen=True, kw_only=True)
class Sent:
    """State after `mask_input` and after `reveal`; the vehicle's own secrets are gone."""

    terms: Terms
    vehicle: str
    sharing: tuple[str, ...]  # vehicles that shared their keys, this one among them
    shares: tuple[bytes, ...] = field(repr=False)
    """Of each of them, the share of its seed and then that of its mask key."""
    survivors: tuple[str, ...] = ()  # for whom shares were revealed; empty before


def advertise(
    terms: Terms, vehicle: str, *, after: int = -1, entropy: Entropy = os.urandom
) -> tuple[Advertised, Advert]:
    """Public keys for an exchange. `after` is the number of the last one this vehicle was in."""
    if terms.number <= after:
        raise DataError(
            f"{vehicle} was asked for exchange {terms.number} of run '{terms.run}', and has taken "
            f"part in exchange {after} already. A round is repeated under a higher number."
        )
    state = Advertised(
        terms=terms,
        vehicle=vehicle,
        mask_secret=entropy(KEY_BYTES),
        cipher_secret=entropy(KEY_BYTES),
    )
    return state, Advert(
        exchange=terms.digest,
        vehicle=vehicle,
        mask_key=public_key(state.mask_secret),
        cipher_key=public_key(state.cipher_secret),
    )


def share_keys(
    state: Advertised, roster: Roster, *, entropy: Entropy = os.urandom
) -> tuple[Shared, Shares]:
    """Shares of the two secrets for every other vehicle of the roster."""
    _in_order(state, Advertised, roster.exchange)
    me, terms, names = state.vehicle, state.terms, roster.vehicles
    _listed(names, me, terms, at_most=terms.called)
    keys = (*roster.mask_keys, *roster.cipher_keys)
    if len(roster.mask_keys) != len(names) or len(set(keys)) != 2 * len(names):
        raise DataError(f"{me} was sent a roster in which keys are missing or occur twice.")
    own = names.index(me)
    mine = public_key(state.mask_secret), public_key(state.cipher_secret)
    if (roster.mask_keys[own], roster.cipher_keys[own]) != mine:
        raise DataError(f"{me} was sent a roster with other keys than its own under its name.")
    seed = entropy(KEY_BYTES)
    parts = zip(
        split(seed, terms.threshold, len(names), entropy),
        split(state.mask_secret, terms.threshold, len(names), entropy),
        strict=True,
    )
    texts = [of_seed + of_key for of_seed, of_key in parts]
    sealed = []
    for name, key, text in zip(names, roster.cipher_keys, texts, strict=True):
        if name != me:
            common = agreed_key(state.cipher_secret, key, terms.digest, "shares", me, name)
            sealed.append(seal(common, text, terms.digest, me, name, entropy))
    shared = Shared(**vars(state), roster=roster, seed=seed, own_shares=texts[own])
    return shared, Shares(
        exchange=terms.digest,
        vehicle=me,
        ciphertexts=tuple(sealed),
        commitment=commitment(terms, me, seed),
    )


def mask_input(state: Shared, inbox: Inbox, words: Words) -> tuple[Sent, Masked]:
    """The vehicle's vector [length] under its masks."""
    _in_order(state, Shared, inbox.exchange)
    me, terms, roster = state.vehicle, state.terms, state.roster
    if words.shape != (terms.length,) or words.dtype != np.dtype(f"<u{terms.bits // 8}"):
        raise DataError(
            f"{me} has {words.size} words of {words.dtype.itemsize * 8} bits to add, and the "
            f"exchange is about {terms.length} of {terms.bits}."
        )
    sharing = tuple(sorted((*inbox.senders, me)))
    _listed(sharing, me, terms, at_most=len(roster.vehicles))
    if len(inbox.ciphertexts) != len(inbox.senders) or not set(sharing) <= set(roster.vehicles):
        raise DataError(f"{me} was sent shares of vehicles that are not on the roster.")
    place = {name: at for at, name in enumerate(roster.vehicles)}
    masked = words + own_mask(terms, state.seed, me)
    texts = {me: state.own_shares}
    for name, sealed in zip(inbox.senders, inbox.ciphertexts, strict=True):
        mask_key, cipher_key = roster.mask_keys[place[name]], roster.cipher_keys[place[name]]
        key = agreed_key(state.cipher_secret, cipher_key, terms.digest, "shares", name, me)
        texts[name] = unseal(key, sealed, terms.digest, name, me)
        if len(texts[name]) != 2 * SHARE_BYTES:
            raise DataError(f"{name} sent {me} something else than two shares.")
        masked = masked + pair_mask(terms, state.mask_secret, mask_key, me, name)
    shares = tuple(texts[name] for name in sharing)
    sent = Sent(terms=terms, vehicle=me, sharing=sharing, shares=shares)
    return sent, Masked(exchange=terms.digest, vehicle=me, words=masked.tobytes())


def reveal(state: Sent, survivors: Survivors) -> tuple[Sent, Revealed]:
    """One share of each vehicle; the same again if the same survivors are asked for again."""
    _in_order(state, Sent, survivors.exchange)
    me, terms, alive = state.vehicle, state.terms, survivors.vehicles
    _listed(alive, me, terms, at_most=len(state.sharing))
    if not set(alive) <= set(state.sharing):
        raise DataError(f"{me} was told of survivors that never shared their keys.")
    if state.survivors not in ((), alive):
        raise DataError(
            f"{me} has revealed its shares for other survivors in this exchange. Both shares of "
            "one vehicle would unmask it, so a second set is refused."
        )
    survived = set(alive)
    shares = tuple(
        text[:SHARE_BYTES] if name in survived else text[SHARE_BYTES:]
        for name, text in zip(state.sharing, state.shares, strict=True)
    )
    answer = Revealed(exchange=terms.digest, vehicle=me, shares=shares)
    return replace(state, survivors=alive), answer


def _in_order(state: object, kind: type, exchange: bytes) -> None:
    """Refuse a message out of turn, or of another exchange."""
    if not isinstance(state, kind):
        raise DataError(
            f"A message of a secure sum came out of turn: the vehicle is "
            f"'{type(state).__name__}', not '{kind.__name__}'. Each is answered once."
        )
    if exchange != state.terms.digest:  # type: ignore[attr-defined]  # every state has terms
        raise DataError("A message of a secure sum belongs to another exchange.")


def _listed(names: tuple[str, ...], me: str, terms: Terms, *, at_most: int) -> None:
    """Refuse a list of vehicles that is too short or long, out of order, or without this one."""
    if not terms.threshold <= len(names) <= at_most:
        raise DataError(
            f"{me} was told of {len(names)} vehicles in a secure sum, and at least "
            f"{terms.threshold} and at most {at_most} must be in it."
        )
    if list(names) != sorted(set(names)) or me not in names:
        raise DataError(f"{me} was sent a list of vehicles with doubles, or without itself.")
