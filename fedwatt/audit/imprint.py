"""Reading the most extreme window of a fleet out of sums of Δ, by models made for it.

Fowl et al., *Robbing the Fed*, ICLR 2022. All units of the first layer look along one direction u,
here the speeds of a window, each above a threshold of its own, and count alike in the prediction:

    h_j = relu(u·x - t_j),   p = b + s Σ_j h_j,   ∂ℓ/∂W_j = s Σ_{i: u·x_i > t_j} δ_i x_i

and the gradient of unit j's bias is the same without x_i. With a large b all δ_i are nearly 2b/B,
so it tells how many windows are above t_j. The next thresholds lie above the highest that any
window is above, until that is one window: its unit's gradient divided by its bias' is the window.
Each try is a round of another run over the same vehicles, so there is no change that a policy could
count. Whose window it is, it does not tell.

Vehicles with the default policy do not train such a model, since no round made it. What is left to
the server is the choice of a seed: it tries many and looks for the unit whose windows lie farthest.
"""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.audit import levels
from fedwatt.audit.displacements import RATE, Displacements
from fedwatt.audit.hidden_sums import hidden_sum
from fedwatt.audit.victims import FloatArray, Victims, blank, explained, windows_at
from fedwatt.deploy.policy import Policy

TRIES: Final = 4
"""With 64 units, 64⁴ thresholds between the ends."""
ENDS: Final = (-1.0, 10.0)
"""Of the thresholds at first: mean scaled speeds of a window."""
SEEDS: Final = 8
"""Models from seeds that are tried where none may be crafted."""
LARGEST: Final = 10.0
"""Of a scaled feature."""
BIAS, SLOPE = 30.0, 1e-3
"""b and s, in scaled labels."""


def extreme_window(victims: Victims) -> dict[str, float]:
    """Share of the fastest window that is recovered: the fleet's, of the victim where it is plain.

    Of one step on the fewest windows of each vehicle that the default policy allows.
    """
    batch = Policy().fewest_trained
    mine, all_ = (victims.victim,), tuple(range(len(victims.fleet.clients)))
    scores = {levels.PLAIN: _score(victims, batch, mine, 0.0), levels.CURIOUS: 0.0}
    scores[levels.MASKS] = _score(victims, batch, all_, 0.0)
    seeded = _read_seeded(victims, batch, hidden=True)
    scores[levels.POLICY] = explained(seeded, _fastest(victims, batch, all_))
    scores[levels.NOISE] = _score(victims, batch, all_, victims.noise)
    return scores | {levels.GUESS: _guessed(victims, batch)}


def _guessed(victims: Victims, batch: int) -> float:
    """What somebody scores who knows how other vehicles drive at their fastest, and no message."""
    true = _fastest(victims, batch, tuple(range(len(victims.fleet.clients))))
    each = [_fastest(victims, batch, (k,)) for k in range(len(victims.fleet.clients))]
    others = [own for own in each if not np.array_equal(own, true)]
    return explained(np.mean(others, axis=0), true)


def _score(victims: Victims, batch: int, vehicles: tuple[int, ...], noise: float) -> float:
    return explained(_read(victims, batch, vehicles, noise), _fastest(victims, batch, vehicles))


def _read(victims: Victims, batch: int, vehicles: tuple[int, ...], noise: float) -> FloatArray:
    """A window from a few sums of Δ over `vehicles`, with z = `noise` on each."""
    (low, high), units = ENDS, victims.model.layout.shapes["hidden1.bias"][0]
    found = np.zeros(victims.model.layout.shapes["hidden1.weight"][0])
    for number in range(TRIES):
        thresholds = np.linspace(low, high, units)
        sent = _crafted(victims, thresholds)
        seen = Displacements(victims, batch, 1, sent)
        total = seen.total(vehicles, noise, f"imprint {number}")
        parts = victims.model.layout.split(total)
        counts = -parts["hidden1.bias"].numpy() / (RATE * 2 * BIAS * SLOPE / batch)
        above = np.flatnonzero(counts > 0.5)
        if not len(above):
            break
        top = int(above[-1])
        quotient = parts["hidden1.weight"][:, top] / parts["hidden1.bias"][top]
        found = np.nan_to_num(quotient.numpy())
        if round(float(counts[top])) == 1:
            break
        low, high = thresholds[top], thresholds[min(top + 1, units - 1)]
    return found


def _read_seeded(victims: Victims, batch: int, *, hidden: bool) -> FloatArray:
    """The window that the units of models from many seeds point at, with nothing crafted.

    Of all units' quotients of gradients that could be a window, the one that lies farthest along u.
    """
    along, best = _direction(victims).double().numpy(), -np.inf
    found = np.zeros(len(along))
    for seed in range(SEEDS):
        rng = victims.rng(f"seed {seed}")
        seen = Displacements(victims, batch, 1, victims.model.initial(rng).float())
        total = sum(seen.all, torch.zeros_like(seen.all[0]))
        if hidden:
            total = hidden_sum(torch.stack(seen.all), 1, rng)[0]
        parts = victims.model.layout.split(total)
        quotients = (parts["hidden1.weight"] / parts["hidden1.bias"]).double().numpy()
        windows = quotients[:, (np.abs(quotients) < LARGEST).all(axis=0)]
        for window in windows.T:
            if window @ along > best:
                best, found = float(window @ along), window
    return found


def _crafted(victims: Victims, thresholds: FloatArray) -> Tensor:
    """The model [D] whose units look for mean speeds above their thresholds."""
    flat, parts, hidden, output = blank(victims.model)
    parts["hidden1.weight"][:] = _direction(victims)[:, None]
    parts["hidden1.bias"][:] = -torch.from_numpy(thresholds)
    for name in hidden[1:]:
        parts[f"{name}.weight"][:, 0] = 1.0
    parts[f"{output}.weight"][0, 0] = SLOPE
    parts[f"{output}.bias"][0] = BIAS
    return flat


def _direction(victims: Victims) -> Tensor:
    """u [window · features]: the mean of the first feature over the window, the speed."""
    client = victims.client
    own = torch.zeros(client.window, len(client.features))
    own[:, 0] = 1 / client.window
    return own.ravel()


def _fastest(victims: Victims, batch: int, vehicles: tuple[int, ...]) -> FloatArray:
    """The window among those drawn that lies farthest along u."""
    drawn = Displacements(victims, batch, 1)
    each = []
    for vehicle in vehicles:
        client = victims.fleet.clients[vehicle]
        each.append(windows_at(client, client.ends["train"][drawn.drawn(vehicle)]))
    windows = torch.cat(each)
    fastest: FloatArray = windows[int((windows @ _direction(victims)).argmax())].double().numpy()
    return fastest
