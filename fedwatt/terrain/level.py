"""Which model predicts a window: the one that knows hills, or the level one.

A network that was trained with hills counts on them. Beside it a run trains the same network
without features of climb, the level model, and a vehicle predicts with it

- every window of which less than half of the climb is known: no receiver, no fix, unknown ground;
- all windows, unless its own validation trips bear the hills out (`borne_out`): wrong positions,
  wrong hills, or too few trips to tell.

So a vehicle whose positions are of no use predicts what it would in a fleet without terrain.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fedwatt.data import DataSettings
from fedwatt.data.client import Client
from fedwatt.data.features import feature_names, level_features, needs_climb
from fedwatt.data.trip import FloatArray

LEVEL: Final = "level"  # name of the folder in a run's that holds the run of its level model
SURE: Final = 2.0  # standard errors by which hills must be better...
FAR: Final = 0.9  # ...or what they must leave of the squared error, however few windows there are


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scaled predictions of R models on all vehicles' windows: validation [R, V], test [R, W]."""

    validation: FloatArray
    test: FloatArray


def level_data(data: DataSettings) -> DataSettings | None:
    """The data settings of the level model; None where features do without climb, or are only that.

    They have the same windows in the same order.
    """
    level = level_features(data.features)
    if not level or not needs_climb(feature_names(data.features)):
        return None
    count = len(feature_names(level))
    components, selected = min(data.components, count), min(data.selected, count)
    return replace(data, features=level, components=components, selected=selected)


def borne_out(hilly: FloatArray, level: FloatArray, client: Client) -> bool:
    """Whether a vehicle's validation windows bear its hills out, by predictions of both models [V].

    Judged are the windows whose climb is known, by the squared error e² that hills save: with G_b
    the sum of e²_level - e²_hilly over windows that end within the same window's length, hills are
    borne out if Σ G_b ≥ 2 √(Σ G_b²), or if Σ e²_hilly ≤ 0.9 Σ e²_level. Where hills are right they
    take three quarters off the squared error, but a handful of trips may show less; wrong ones are
    mostly given up before, when a vehicle chooses its field (results/hills_gate.json).
    """
    known = client.known["validation"]
    labels = client.labels["validation"].astype(np.float64)
    before, after = ((own - labels)[known] ** 2 for own in (level, hilly))
    # Windows overlap, and those that do tell the same story. Neighbouring blocks still share some,
    # so these are somewhat fewer standard errors than they seem.
    _, block = np.unique(client.ends["validation"][known] // client.window, return_inverse=True)
    saved = np.bincount(block, before - after)
    sure = saved.sum() >= SURE * np.sqrt((saved**2).sum())
    far = after.sum() <= FAR * before.sum()
    # Not the other way round: what a diverged network saves is NaN, and bears nothing out.
    return bool(saved.sum() > 0 and (sure or far))
