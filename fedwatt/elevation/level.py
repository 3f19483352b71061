"""Choice between the model with elevation and the model without it, window by window.

A network that was trained with hills counts on them. Beside it a run trains the same network
without features of climb, the level model, and a vehicle predicts with it

- every window of which less than half of the climb is known: no receiver, no fix, unknown ground;
- all windows, unless its own validation trips bear the hills out (`borne_out`): wrong positions,
  wrong hills, or too few trips to tell.

So a vehicle whose positions are of no use predicts what it would in a fleet without elevation.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import DataSettings
from fedwatt.windows.client import Client
from fedwatt.windows.features import feature_names, level_features, needs_climb

LEVEL: Final = "level"  # name of the folder in a run's that holds the run of its level model
SURE: Final = 2.0  # standard errors by which hills must be better...
FAR: Final = 0.9  # ...or what they must leave of the squared error, however few windows there are


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scaled predictions of R models on all vehicles' windows: validation [R, V], test [R, W]."""

    validation: FloatArray
    test: FloatArray


def level_data(data: DataSettings) -> DataSettings | None:
    """Return the data settings of the level model; None where features do without climb, or are
    only that.

    They have the same windows in the same order.
    """
    level = level_features(data.features)
    if not level or not needs_climb(feature_names(data.features)):
        return None
    count = len(feature_names(level))
    components = min(data.components, count)
    selected = min(data.selected, count)
    return replace(data, features=level, components=components, selected=selected)


@dataclass(frozen=True)
class Evidence:
    """Errors of validation windows with and without elevation.

    sure   standard errors by which hills save squared error; NaN where no climb is known
    left   share of the level model's squared error that they leave; NaN likewise
    """

    sure: float
    left: float

    def bears_out(self, far: float = FAR) -> bool:
        """Return whether hills are sure to be better, or leave at most the share `far`."""
        # Not the other way round: what a diverged network leaves is NaN, and bears nothing out.
        return self.left < 1 and (self.sure >= SURE or self.left <= far)


def evidence(hilly: FloatArray, level: FloatArray, client: Client) -> Evidence:
    """Return the evidence of a vehicle's validation windows, by scaled predictions of both models
    [V].

    Evaluated are the windows whose climb is known, by the squared error that hills save: with G_b
    the sum of e²_level - e²_hilly over windows that end within the same window's length, `sure` is
    Σ G_b / √(Σ G_b²) and `left` Σ e²_hilly / Σ e²_level.
    """
    known = client.climb_known["validation"]
    labels = client.labels["validation"].astype(np.float64)
    before, after = ((own - labels)[known] ** 2 for own in (level, hilly))
    if not before.sum() > 0:
        return Evidence(np.nan, np.nan)
    # Windows overlap, and those that do tell the same story. Neighbouring blocks still share some,
    # so these are somewhat fewer standard errors than they seem.
    _, block = np.unique(client.ends["validation"][known] // client.window, return_inverse=True)
    saved = np.bincount(block, before - after)
    error = max(float(np.sqrt((saved**2).sum())), 1e-300)
    return Evidence(float(saved.sum()) / error, float(after.sum() / before.sum()))


def borne_out(hilly: FloatArray, level: FloatArray, client: Client) -> bool:
    """Return whether a vehicle's validation windows bear its hills out, by predictions of both
    models [V].

    They do by two standard errors, or if hills take a tenth off the squared error. Where hills are
    right they take three quarters off it, but a handful of trips may show less; wrong ones are
    mostly given up before, when a vehicle chooses its field (results/hills_gate.json).
    """
    return evidence(hilly, level, client).bears_out()
