"""A whole exchange in one process, with vehicles that drop out where they are told to.

For tests, examples and whoever wants to see the order of messages; a deployment sends them.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedwatt.metrics.sums import Words
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.keys import Identity, Trust
from fedwatt.privacy.secure.shamir import Entropy
from fedwatt.privacy.secure.vehicle import advertise, agree, mask_input, reveal, share_keys
from fedwatt.privacy.secure_settings import SecureTerms
from tests.privacy.exchanges import collect

STAGES = ("nothing", "keys", "shares", "vector", "agreement", "everything")


def rehearse(
    terms: SecureTerms,
    words: Mapping[str, Words],
    last: Mapping[str, str] | None = None,
    *,
    entropy: Entropy = os.urandom,
    overheard: Callable[[object], None] = lambda message: None,
    identities: Mapping[str, Identity] | None = None,
    trust: Trust | None = None,
) -> tuple[Words, tuple[str, ...]]:
    """Return the sum over the survivors' vectors and their names, from an exchange in memory.

    `last` says of a vehicle the last thing that still arrives from it: "nothing", "keys", "shares",
    "vector", "agreement" or "everything" (the default). `overheard` is called with every message of
    a vehicle. With `identities` vehicles sign, and with `trust` they check each other's signatures.
    """
    last = dict.fromkeys(words, "everything") | dict(last or {})

    states: dict[str, Any] = {}

    def answers(what: str, asked: Iterable[str], answer: Callable[[str], Any]) -> dict[str, Any]:
        """Return the answers that arrive; every vehicle goes on to its next state."""
        arrived = {}
        for name in asked:
            states[name], message = answer(name)
            if STAGES.index(last[name]) >= STAGES.index(what):
                overheard(message)
                arrived[name] = message
        return arrived

    who = dict(identities or {})
    adverts = answers(
        "keys",
        words,
        lambda name: advertise(terms, name, identity=who.get(name), entropy=entropy),
    )
    keyed = server.make_roster(terms, adverts, {})
    shares = answers(
        "shares",
        keyed.graph.names,
        lambda name: share_keys(states[name], keyed.roster(name), trust=trust, entropy=entropy),
    )
    routed, inboxes = server.route(keyed, shares, {})
    masked = answers(
        "vector", inboxes, lambda name: mask_input(states[name], inboxes[name], words[name])
    )
    summed, survivors, _ = collect(routed, masked)
    alive = summed.survivors
    agreed = answers(
        "agreement", alive, lambda name: agree(states[name], survivors, identity=who.get(name))
    )
    passed = server.pass_on(summed, agreed, {})
    revealed = answers(
        "everything", passed, lambda name: reveal(states[name], passed[name], trust=trust)
    )
    return server.unmask(summed, revealed, {}), alive
