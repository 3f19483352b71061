"""Settings of training and of the vehicles' availability."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check
from fedwatt.methods.rule import SCHEDULES
from fedwatt.models import LOSSES
from fedwatt.settings import Checked, choice, number


@dataclass(frozen=True, kw_only=True)
class Training(Checked):
    """The rounds and the work inside a round; the paper's values where it has them."""

    rounds: int = number(40, "[1, inf]")
    """T"""
    participation: float = number(0.3, "(0, 1]")
    """C, the share of available vehicles that train in a round."""
    sampling: str = choice("fixed", "poisson")
    """"fixed" calls ⌈C·|A_t|⌉ vehicles; "poisson" calls each one with probability C on its own."""
    epochs: int = number(1, "[1, inf]")
    """E, passes over a vehicle's windows in a round."""
    steps: int = number(0, "[0, inf]", "(0: epochs decide)")
    """H, local steps in a round whatever a vehicle's size; 0: `epochs` decides."""
    batch: int = number(64, "[1, inf]", "window")
    """B, windows a step."""
    learning_rate: float = number(0.05, "(0, inf)")
    """η₀"""
    schedule: str = choice(*SCHEDULES, default="inverse-sqrt")
    """η_t = η₀/√(t+1), or "constant"."""
    loss: str = choice(*LOSSES, default="mse")
    precision: str = choice("float32", "float64")
    tf32: bool = False
    """Local steps' float32 products in TF32 on a GPU that has it: quicker, three digits."""
    deterministic: bool = False
    """Whether a vehicle's steps are the same to the last bit in any stack of vehicles, on a GPU
    and where torch takes the steps; slower there. Steps in C always are."""
    evaluate_every: int = number(1, "[1, inf]", "round")
    """Rounds between evaluations; the last round is always evaluated."""
    evaluate_vehicles: int = number(0, "[0, inf]", "(0: all)")
    """Vehicles that a round's errors are taken from, always the same ones; 0: all, and on a real
    fleet without masks at most 200."""
    patience: int = number(0, "[0, inf]", "rounds (0: all rounds are done)")
    """Rounds without a lower validation RMSE after which a run stops early, each seed for itself;
    seen at evaluations; 0: all rounds are done."""


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Checked):
    """Buffered asynchronous aggregation (FedBuff) in place of rounds, where `buffer` is set."""

    buffer: int = number(0, "[0, inf]", "replies (0: synchronous rounds)")
    """Kb, the replies that make the next model (10 in the literature); 0: synchronous rounds."""
    concurrency: int = number(0, "[0, inf]", "(0: participation decides)")
    """Mc, vehicles at work at any time; 0: as many as `participation` calls for a round."""
    staleness_exponent: float = number(0.5, "[0, inf)")
    """a; a reply to a model σ versions old counts (1 + σ)^-a. 0: age does not matter."""
    max_staleness: int = number(0, "[0, inf]", "(0: no limit)")
    """σ_max, the age above which a reply is dropped; 0: none is."""
    weighting: str = choice("uniform", "windows")
    """"uniform", or "windows": a reply counts n_k over the fleet's mean."""
    jitter: float = number(0.1, "[0, inf)")
    """Standard deviation of the logarithm of a vehicle's time for the same work."""


@dataclass(frozen=True, kw_only=True)
class Availability(Checked):
    """Availability of vehicles, loss of updates, and computing speeds.

    The defaults are an ideal fleet: all vehicles there, equally fast, no reply lost.
    """

    p_leave: float = number(0.0, "[0, 1]")
    """Probability that an available vehicle is gone in the next round."""
    p_join: float = number(0.0, "[0, 1]")
    """Probability that an absent vehicle is back in the next round."""
    initially: float = number(1.0, "(0, 1]")
    """Share of vehicles available in the first round."""
    reply_loss: float = number(0.0, "[0, 1]")
    """Probability that a participant's reply never arrives."""
    speeds: tuple[float, ...] = (1.0,)
    """Relative speeds of the device classes; each vehicle is of one class, drawn at random."""
    deadline: float = number(0.0, "[0, inf)", "(0: no deadline)")
    """Time for local work, in steps of a device of speed 1; 0: no deadline."""
    own_deadline: float = number(0.0, "[0, inf)", "(0: no deadline)")
    """Time for local work, as a multiple of what a device of speed 1 needs for the vehicle's own;
    0: no such deadline. With 1, a device half as fast takes half of its steps."""
    stragglers: str = choice("partial", "drop")
    """A vehicle that cannot finish in time sends what it has ("partial") or nothing ("drop")."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = len(self.speeds) >= 1 and all(0 < speed < inf for speed in self.speeds)
        check(self, "speeds", positive, "one or more finite speeds above 0, such as (1.0, 0.5)")
