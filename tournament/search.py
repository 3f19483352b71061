"""The trials of an entry: its defaults, then a Latin hypercube of the ranges its rules declare."""

from typing import Any

import numpy as np

from fedwatt.federation import Training
from fedwatt.randomness import generator
from tournament.entries import Entry


def trials(entry: Entry, count: int) -> list[dict[str, Any]]:
    """`count` settings, the defaults first.

    Each range is cut into as many equal parts as there are trials besides, and every part is met
    once; rates are the same for all entries.

    >>> [round(t["rate"], 4) for t in trials(Entry("fedavg"), 3)]
    [0.05, 0.0032, 0.0316]
    """
    others, columns = count - 1, {}
    for name, own in entry.ranges.items():
        places = (np.arange(others) + 0.5) / max(others, 1)
        if name != "rate":
            places = generator(0, "tournament", entry.name, name).permutation(places)
        low, high = np.log([own.low, own.high]) if own.log else (own.low, own.high)
        values = low + places * (high - low)
        columns[name] = [float(f"{v:.4g}") for v in (np.exp(values) if own.log else values)]
    default = {"rate": Training().rate}
    return [default, *({name: own[i] for name, own in columns.items()} for i in range(others))]
