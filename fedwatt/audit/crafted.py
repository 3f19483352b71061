"""Reading windows through `evaluate`: models made so that an error sum is a number of a window.

With one unit of the first layer switched to input j and everything else to 0, an MLP predicts
p = g x_j + b, whatever the window. Squared errors of p with g and with -g differ by

    Σ_i (s(g x_ij + b) + r_i)² - Σ_i (s(-g x_ij + b) + r_i)²  =  4 s g Σ_i x_ij (s b + r_i)

where s scales labels and r_i = c - Y_i. Biases alone give s and Σ r_i. With one window this is x_j
exactly; with n, a mean over windows. 3 + 2·inputs questions. Error sums carry no noise, so a
private method changes nothing.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
from torch import Tensor

from fedwatt.audit import levels
from fedwatt.audit.victims import FloatArray, Victims, blank, explained, windows_of
from fedwatt.deploy.error_vectors import judging_layout, judging_values
from fedwatt.deploy.policy import Policy
from fedwatt.federation import LocalFleet
from fedwatt.models import Model
from fedwatt.privacy.fixed_point import add_up

GAIN, BIAS, LIFT = 1.0, 30.0, 32.0
"""g, b, and what keeps the units positive."""

Answer = Callable[[Tensor], float]
"""Σe² in Wh² of test windows, of a model [D]."""


def probe(model: Model, place: int | None, gain: float, bias: float) -> Tensor:
    """A model [D] that predicts gain · x_place + bias; None: bias alone."""
    flat, parts, hidden, output = blank(model)
    if place is not None:
        parts[f"{hidden[0]}.weight"][place, 0] = 1.0
        parts[f"{hidden[0]}.bias"][0] = LIFT
        for name in hidden[1:]:
            parts[f"{name}.weight"][0, 0] = 1.0
        parts[f"{output}.weight"][0, 0] = gain
        bias = bias - gain * LIFT
    parts[f"{output}.bias"][0] = bias
    return flat


def read_window(model: Model, answer: Answer, windows: int, inputs: int) -> FloatArray:
    """The window [inputs] that the answers are about, or the mean of several."""
    zero, up, down = (answer(probe(model, None, 0.0, bias)) for bias in (0.0, BIAS, -BIAS))
    scale = sqrt(max((up + down - 2 * zero) / (2 * windows * BIAS**2), 1e-12))
    residual = (up - down) / (4 * scale * BIAS * windows)
    found = np.zeros(inputs)
    for place in range(inputs):
        more, less = (answer(probe(model, place, gain, BIAS)) for gain in (GAIN, -GAIN))
        found[place] = (more - less) / (4 * scale * GAIN * windows * (scale * BIAS + residual))
    return found


def squared(local: LocalFleet, weights: Tensor) -> float:
    """Σe² over the test windows of all vehicles, as a secure sum has it."""
    test = local.evaluate(weights[None])[0].test
    answers = (judging_values(own, own, 1) for own in test)
    total = add_up(judging_layout(len(test)).fields, len(test), answers)
    return float(total["squared_wh2"][1])


def crafted_evaluation(victims: Victims, inputs: int) -> dict[str, float]:
    """Share of a test window of the victim that each level gives away; the first `inputs`."""
    model = victims.model
    true = windows_of(victims.client, "test", 1)[0].double().numpy()[:inputs]
    alone = victims.local((victims.victim,))
    one = victims.only_window()
    scores = {}

    def plain(weights: Tensor) -> float:
        return float(one.evaluate(weights[None])[0].test[0].squared_wh2)

    scores[levels.PLAIN] = explained(read_window(model, plain, 1, inputs), true)
    together, rest = victims.with_only_window(), victims.local(victims.others)

    def difference(weights: Tensor) -> float:
        return squared(together, weights) - squared(rest, weights)

    scores[levels.MASKS] = explained(read_window(model, difference, 1, inputs), true)
    # The policy keeps the vehicle's own windows, few changes of the set, and few models a day that
    # no round made. Scale and residual take three differences, an input two; the rest is a guess.
    policy = Policy()
    models = min(policy.set_changes_a_day, policy.unfollowed_a_day)
    few = min(inputs, max(0, models - 3) // 2)
    count = len(victims.client.ends["test"])
    mine = read_window(
        model, lambda own: float(alone.evaluate(own[None])[0].test[0].squared_wh2), count, few
    )
    scores[levels.POLICY] = explained(np.concatenate([mine, np.zeros(inputs - few)]), true)
    scores[levels.NOISE] = scores[levels.POLICY]
    # A curious server sends the models that it says, and none of them reads an input.
    return scores | {levels.CURIOUS: 0.0, levels.GUESS: 0.0}
