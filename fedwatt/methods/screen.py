"""A screen by signals: replies that are out of line are left out, all others are averaged.

Left out is a reply whose length a step is more than `screen_z` robust standard deviations above
the others' (`metrics/agreement.py`: scaled or diverging updates, a broken sensor), and one whose
vehicle has worked against the fleet in `screen_turns` turns running, where vehicles tell that
(`+signals` with `tell_turns`: flipped signs, wrong labels). It is no defence against whoever knows
it: a lie just below the threshold passes. Use it where vehicles are honest and sensors are not.
"""

from dataclasses import dataclass

import torch

from fedwatt.methods.defence import Defence, selected
from fedwatt.methods.server import Replies
from fedwatt.metrics.agreement import TOO_LONG, TURNS, out_of_line
from fedwatt.settings import number


@dataclass(frozen=True, kw_only=True)
class Screen(Defence):
    """Averages the replies that no signal speaks against."""

    screen_z: float = number(TOO_LONG, "(0, inf)", fixed="what counts as out of line")
    """Robust standard deviations above the median at which a reply is too long."""
    screen_turns: int = number(TURNS, "[1, inf]", "turn")
    """Turns running against the fleet after which a vehicle's reply is left out."""

    def screen(self, replies: Replies) -> Replies:
        """Return the replies in line; all of them where none would be left."""
        lengths = torch.linalg.vector_norm(replies.deltas, dim=-1, dtype=torch.float64).cpu()
        if replies.steps is not None:
            lengths = lengths / replies.steps.cpu()
        _, z = out_of_line(lengths.numpy())
        good = ~(torch.from_numpy(z) > self.screen_z)
        against = replies.uploads.get("opposed")
        if against is not None:
            good &= against.cpu() < self.screen_turns
        if not good.any():
            return replies
        return selected(replies, good.nonzero().flatten().to(replies.deltas.device))
