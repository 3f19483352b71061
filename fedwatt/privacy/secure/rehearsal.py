"""A whole exchange in one process, with vehicles that drop out where they are told to.

For tests, examples and whoever wants to see the order of messages; a deployment sends them.
"""

import os
from collections.abc import Callable, Mapping

from fedwatt.privacy.fixed_point import Words
from fedwatt.privacy.secure import server, vehicle
from fedwatt.privacy.secure.shamir import Entropy
from fedwatt.privacy.secure_settings import Terms

STAGES = ("nothing", "keys", "shares", "vector", "everything")


def rehearse(
    terms: Terms,
    words: Mapping[str, Words],
    last: Mapping[str, str] | None = None,
    *,
    entropy: Entropy = os.urandom,
    overheard: Callable[[object], None] = lambda message: None,
) -> tuple[Words, tuple[str, ...]]:
    """The sum over the survivors' vectors, and who they are.

    `last` says of a vehicle the last thing that still arrives from it: "nothing", "keys", "shares",
    "vector" or "everything" (the default). `overheard` is called with every message of a vehicle.
    """
    last = dict.fromkeys(words, "everything") | dict(last or {})

    def heard(name: str, what: str, message: object) -> bool:
        arrives = STAGES.index(last[name]) >= STAGES.index(what)
        if arrives:
            overheard(message)
        return arrives

    adverts, shares, masked, revealed = {}, {}, {}, {}
    advertised, shared, sent = {}, {}, {}
    for name in words:
        advertised[name], advert = vehicle.advertise(terms, name, entropy=entropy)
        if heard(name, "keys", advert):
            adverts[name] = advert
    roster, _ = server.make_roster(terms, adverts)
    for name in roster.vehicles:
        shared[name], share = vehicle.share_keys(advertised[name], roster, entropy=entropy)
        if heard(name, "shares", share):
            shares[name] = share
    routed, inboxes, _ = server.route(terms, roster, shares)
    for name, inbox in inboxes.items():
        sent[name], vector = vehicle.mask_input(shared[name], inbox, words[name])
        if heard(name, "vector", vector):
            masked[name] = vector
    summed, survivors, _ = server.collect(routed, masked)
    for name in survivors.vehicles:
        sent[name], answer = vehicle.reveal(sent[name], survivors)
        if heard(name, "everything", answer):
            revealed[name] = answer
    total, _ = server.unmask(summed, revealed)
    return total, survivors.vehicles
