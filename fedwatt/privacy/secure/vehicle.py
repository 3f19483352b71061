"""The vehicle's part of an exchange: five answers, each a function of its state and a message.

Bonawitz et al., CCS 2017, Figure 4, with signed keys and the consistency check against a server
that lies, on the graph of Bell et al., CCS 2020:

    advertise    two fresh key pairs, signed
    share_keys   its own seed b_u and its private mask key, each in shares for its neighbours
    mask_input   x_u + PRG(b_u) + Σ_v ± PRG(s_uv)      v: neighbours that shared their keys
    agree        its signature of who takes part and who survived
    reveal       where enough neighbours signed the same: shares of the survivors' seeds and of the
                 mask keys of those that dropped out

Both kinds of shares of one vehicle would unmask its vector. So a vehicle answers for one set of
survivors only: who is in it is no drop-out, and a second, different set is refused. States hold
secrets: keep them in memory, store the new one before the answer is sent, and never go back to an
old one.
"""

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from fedwatt.errors import DataError
from fedwatt.metrics.sums import Words, packed, reduced, word_type
from fedwatt.privacy.secure.graph import Graph
from fedwatt.privacy.secure.keys import (
    KEY_BYTES,
    Identity,
    Trust,
    agreed_key,
    check_signature,
    commitment,
    framed,
    own_mask,
    pair_mask,
    public_key,
    seal,
    unseal,
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
    names_of,
)
from fedwatt.privacy.secure.shamir import SHARE_BYTES, Entropy, split
from fedwatt.privacy.secure_settings import SecureTerms


@dataclass(frozen=True, kw_only=True)
class Advertised:
    """State after `advertise`."""

    terms: SecureTerms
    vehicle: str
    mask_secret: bytes = field(repr=False)
    cipher_secret: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """State after `share_keys`."""

    terms: SecureTerms
    vehicle: str
    roster: NeighbourRoster
    mask_secret: bytes = field(repr=False)
    cipher_secret: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    own_shares: bytes = field(repr=False)  # the vehicle's shares of its own two secrets


@dataclass(frozen=True, kw_only=True)
class Sent:
    """State after `mask_input`, `agree` and `reveal`; the vehicle's own secrets are gone."""

    terms: SecureTerms
    vehicle: str
    vehicles: tuple[str, ...]
    """All of the roster."""
    sharing: tuple[str, ...]
    """Vehicles of its group that shared their keys, this one among them."""
    publics: tuple[bytes, ...]
    """Their lasting public keys; empty for this one."""
    shares: tuple[bytes, ...] = field(repr=False)
    """Of each of them, the share of its seed and then that of its mask key."""
    arrived: bytes = b""
    """For which survivors it signed; empty before."""


def advertise(
    terms: SecureTerms,
    vehicle: str,
    *,
    after: int = -1,
    identity: Identity | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[Advertised, Advert]:
    """Return public keys for an exchange; `after` is the number of the vehicle's last one."""
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
    advert = Advert(
        exchange=terms.digest,
        vehicle=vehicle,
        mask_key=public_key(state.mask_secret),
        cipher_key=public_key(state.cipher_secret),
    )
    if identity is not None:
        signature = identity.sign(*_advertised(terms, vehicle, advert.mask_key, advert.cipher_key))
        advert = replace(
            advert, public=identity.public, voucher=identity.voucher, signature=signature
        )
    return state, advert


def share_keys(
    state: Advertised,
    roster: NeighbourRoster,
    *,
    trust: Trust | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[Shared, Shares]:
    """Return shares of both secrets for every neighbour; with `trust` all keys must be signed."""
    _in_order(state, Advertised, roster.exchange)
    me = state.vehicle
    terms = state.terms
    names = roster.vehicles
    _listed(names, me, terms, at_most=terms.called)
    graph = Graph(terms, names)
    neighbours = graph.neighbours(me)
    group = graph.group(me)
    _check_keys(state, roster, neighbours, trust)
    seed = entropy(KEY_BYTES)
    of_seed = split(seed, graph.shares_needed, len(group), entropy)
    of_key = split(state.mask_secret, graph.shares_needed, len(group), entropy)
    texts = {name: a + b for name, a, b in zip(group, of_seed, of_key, strict=True)}
    sealed = []
    for name, key in zip(neighbours, roster.cipher_keys, strict=True):
        common = agreed_key(state.cipher_secret, key, terms.digest, "shares", me, name)
        sealed.append(seal(common, texts[name], terms.digest, me, name, entropy))
    shared = Shared(**vars(state), roster=roster, seed=seed, own_shares=texts[me])
    return shared, Shares(
        exchange=terms.digest,
        vehicle=me,
        ciphertexts=tuple(sealed),
        commitment=commitment(terms, me, seed),
    )


def mask_input(state: Shared, inbox: Inbox, words: Words) -> tuple[Sent, Masked]:
    """Return the vehicle's vector [length] under its masks."""
    _in_order(state, Shared, inbox.exchange)
    me = state.vehicle
    terms = state.terms
    roster = state.roster
    # Words of 48 and of 64 bits are of one machine type: what tells them apart is their size.
    fits = words.shape == (terms.length,) and words.dtype == word_type(terms.bits)
    if not fits or not np.array_equal(words, reduced(words, terms.bits)):
        raise DataError(
            f"{me} has {words.size} words of {words.dtype.itemsize * 8} bits to add, and the "
            f"exchange is about {terms.length} of {terms.bits}."
        )
    graph = Graph(terms, roster.vehicles)
    place = {name: at for at, name in enumerate(graph.neighbours(me))}
    senders = inbox.senders
    if len(inbox.ciphertexts) != len(senders) or not set(senders) <= place.keys():
        raise DataError(f"{me} was sent shares of vehicles that are not its neighbours.")
    if len(set(senders)) != len(senders) or len(senders) + 1 < graph.signatures_needed:
        raise DataError(f"{me} was sent the shares of too few neighbours, or of one twice.")
    masked = words + own_mask(terms, state.seed, me)
    texts = {me: state.own_shares}
    publics = {me: b""}
    for name, sealed in zip(senders, inbox.ciphertexts, strict=True):
        mask_key = roster.mask_keys[place[name]]
        cipher_key = roster.cipher_keys[place[name]]
        key = agreed_key(state.cipher_secret, cipher_key, terms.digest, "shares", name, me)
        texts[name] = unseal(key, sealed, terms.digest, name, me)
        if len(texts[name]) != 2 * SHARE_BYTES:
            raise DataError(f"{name} sent {me} something else than two shares.")
        publics[name] = roster.publics[place[name]]
        masked = masked + pair_mask(terms, state.mask_secret, mask_key, me, name)
    sharing = tuple(sorted(texts))
    sent = Sent(
        terms=terms,
        vehicle=me,
        vehicles=roster.vehicles,
        sharing=sharing,
        publics=tuple(publics[name] for name in sharing),
        shares=tuple(texts[name] for name in sharing),
    )
    return sent, Masked(exchange=terms.digest, vehicle=me, words=packed(masked, terms.bits))


def agree(
    state: Sent, survivors: Survivors, *, identity: Identity | None = None
) -> tuple[Sent, Agreed]:
    """Return the signature of who survived; the same for a repeated request."""
    _in_order(state, Sent, survivors.exchange)
    me = state.vehicle
    terms = state.terms
    names = state.vehicles
    alive = names_of(names, survivors.arrived)
    if len(survivors.arrived) != (len(names) + 7) // 8:
        raise DataError(f"{me} was told of survivors in other numbers than its roster's.")
    _listed(alive, me, terms, at_most=len(names))
    graph = Graph(terms, names)
    near = set(graph.group(me)) & set(alive)
    if not near <= set(state.sharing):
        raise DataError(f"{me} was told of survivors that never shared their keys.")
    if len(near) < graph.signatures_needed:
        raise DataError(f"{me} has too few surviving neighbours to hide among.")
    if state.arrived not in (b"", survivors.arrived):
        raise DataError(
            f"{me} has agreed to other survivors in this exchange. Both shares of one vehicle "
            "would unmask it, so a second set is refused."
        )
    state = replace(state, arrived=survivors.arrived)
    signature = b"" if identity is None else identity.sign(*_statement(state))
    return state, Agreed(exchange=terms.digest, vehicle=me, signature=signature)


def reveal(
    state: Sent, agreements: Agreements, *, trust: Trust | None = None
) -> tuple[Sent, Revealed]:
    """Return a share of each vehicle of the group, where enough agreed to the same survivors."""
    _in_order(state, Sent, agreements.exchange)
    me = state.vehicle
    terms = state.terms
    if not state.arrived:
        raise DataError("A message of a secure sum came out of turn: survivors were not agreed to.")
    alive = set(names_of(state.vehicles, state.arrived))
    publics = dict(zip(state.sharing, state.publics, strict=True))
    signers = set(agreements.signers) - {me}
    paired = len(agreements.signers) == len(agreements.signatures)
    if not signers <= alive & publics.keys() or not paired:
        raise DataError(f"{me} was sent agreements of vehicles that are not its neighbours.")
    if len(signers) + 1 < Graph(terms, state.vehicles).signatures_needed:
        raise DataError(f"{me} was sent the agreement of too few neighbours.")
    if trust is not None:
        for name, signature in zip(agreements.signers, agreements.signatures, strict=True):
            if name != me:
                check_signature(name, publics[name], signature, *_statement(state))
    shares = tuple(
        text[:SHARE_BYTES] if name in alive else text[SHARE_BYTES:]
        for name, text in zip(state.sharing, state.shares, strict=True)
    )
    return state, Revealed(exchange=terms.digest, vehicle=me, shares=shares)


def _advertised(
    terms: SecureTerms, name: str, mask_key: bytes, cipher_key: bytes
) -> tuple[bytes, ...]:
    """Return the parts that an advert's signature covers."""
    return b"advert", terms.digest, name.encode(), mask_key, cipher_key


def _statement(state: Sent) -> tuple[bytes, ...]:
    """Return the signed content of an agreement: all of the roster, and who survived."""
    roster = sha256(framed(*(name.encode() for name in state.vehicles))).digest()
    return b"survivors", state.terms.digest, roster, state.arrived


def _check_keys(
    state: Advertised, roster: NeighbourRoster, neighbours: tuple[str, ...], trust: Trust | None
) -> None:
    """Refuse a roster whose keys are missing, repeated, this vehicle's own, or not signed."""
    me = state.vehicle
    terms = state.terms
    columns = (roster.mask_keys, roster.cipher_keys, roster.publics, roster.vouchers)
    own_keys = {public_key(state.mask_secret), public_key(state.cipher_secret)}
    keys = (*roster.mask_keys, *roster.cipher_keys)
    complete = all(len(column) == len(neighbours) for column in (*columns, roster.signatures))
    if not complete or len(set(keys)) != 2 * len(neighbours) or own_keys & set(keys):
        raise DataError(f"{me} was sent a roster in which keys are missing or occur twice.")
    if trust is None:
        return
    if len(set(roster.publics)) != len(neighbours):
        raise DataError(f"{me} was sent a roster in which one vehicle has two names.")
    rows = zip(neighbours, *columns, roster.signatures, strict=True)
    for name, mask_key, cipher_key, public, voucher, signature in rows:
        trust.check_voucher(name, public, voucher)
        signed = _advertised(terms, name, mask_key, cipher_key)
        check_signature(name, public, signature, *signed)


def _in_order(state: object, kind: type, exchange: bytes) -> None:
    """Refuse a message out of turn, or of another exchange."""
    if not isinstance(state, kind):
        raise DataError(
            f"A message of a secure sum came out of turn: the vehicle is "
            f"'{type(state).__name__}', not '{kind.__name__}'. Each is answered once."
        )
    if exchange != state.terms.digest:  # type: ignore[attr-defined]  # every state has terms
        raise DataError("A message of a secure sum belongs to another exchange.")


def _listed(names: tuple[str, ...], me: str, terms: SecureTerms, *, at_most: int) -> None:
    """Refuse a list of vehicles that is too short or long, out of order, or without this one."""
    if not terms.threshold <= len(names) <= at_most:
        raise DataError(
            f"{me} was told of {len(names)} vehicles in a secure sum, and at least "
            f"{terms.threshold} and at most {at_most} must be in it."
        )
    if list(names) != sorted(set(names)) or me not in names:
        raise DataError(f"{me} was sent a list of vehicles with doubles, or without itself.")
