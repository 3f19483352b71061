"""Settings of training and of the vehicles' availability."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check
from fedwatt.methods.rule import SCHEDULES
from fedwatt.models import LOSSES
from fedwatt.settings import Checked, choice, number


@dataclass(frozen=True, kw_only=True)
class Training(Checked):
    """Settings of rounds and local training; defaults are the paper's where it has any."""

    rounds: int = number(40, "[1, inf]")
    """T"""
    participation: float = number(0.3, "(0, 1]")
    """C, the share of available vehicles that train in a round."""
    sampling: str = choice("fixed", "poisson")
    """"fixed" calls ⌈C·|A_t|⌉ vehicles; "poisson" calls each independently with probability C."""
    epochs: int = number(1, "[1, inf]")
    """E, passes over a vehicle's windows in a round."""
    steps: int = number(0, "[0, inf]", "(0: epochs decide)")
    """H, local steps in a round for every vehicle; 0: `epochs` decides."""
    batch: int = number(64, "[1, inf]", "window")
    """B, windows per step."""
    learning_rate: float = number(0.05, "(0, inf)")
    """η₀"""
    schedule: str = choice(*SCHEDULES, default="inverse-sqrt")
    """η_t = η₀/√(t+1), or "constant"."""
    loss: str = choice(*LOSSES, default="mse")
    precision: str = choice("float32", "float64")
    tf32: bool = False
    """Whether a GPU computes float32 products in TF32: faster, with three digits."""
    deterministic: bool = False
    """Whether a vehicle's steps are bit-identical in any stack also on a GPU and where torch takes
    the steps; slower there. Steps in C always are."""
    evaluate_every: int = number(1, "[1, inf]", "round")
    """Rounds between evaluations; the last round is always evaluated."""
    evaluate_vehicles: int = number(0, "[0, inf]", "(0: all)")
    """Number of vehicles that evaluate models, the same in all rounds; 0: all, and at most 200 of a
    deployed fleet without secure aggregation."""
    patience: int = number(0, "[0, inf]", "rounds (0: all rounds are done)")
    """Rounds without a lower validation RMSE after which a seed stops early, checked at
    evaluations; 0: all rounds are done."""


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Checked):
    """Settings of buffered asynchronous aggregation (FedBuff), used if `buffer` is above 0."""

    buffer: int = number(0, "[0, inf]", "replies (0: synchronous rounds)")
    """Kb, updates per model (10 in the literature); 0: synchronous rounds."""
    concurrency: int = number(0, "[0, inf]", "(0: participation decides)")
    """Mc, vehicles at work at any time; 0: as many as `participation` calls for a round."""
    staleness_exponent: float = number(0.5, "[0, inf)")
    """a; an update of a model σ versions old is scaled by (1 + σ)^-a. 0: age does not matter."""
    max_staleness: int = number(0, "[0, inf]", "(0: no limit)")
    """σ_max, the age above which an update is dropped; 0: none is."""
    weighting: str = choice("uniform", "windows")
    """"uniform", or "windows": an update is weighted by n_k over the fleet's mean."""
    jitter: float = number(0.1, "[0, inf)")
    """Standard deviation of the logarithm of a vehicle's time for equal work."""


@dataclass(frozen=True, kw_only=True)
class Availability(Checked):
    """Settings of availability, lost updates and computing speeds.

    By default all vehicles are available and equally fast, and no update is lost.
    """

    p_leave: float = number(0.0, "[0, 1]")
    """Probability that an available vehicle is not available in the next round."""
    p_join: float = number(0.0, "[0, 1]")
    """Probability that an absent vehicle is available in the next round."""
    initially: float = number(1.0, "(0, 1]")
    """Share of vehicles available in the first round."""
    reply_loss: float = number(0.0, "[0, 1]")
    """Probability that a participant's update is lost."""
    speeds: tuple[float, ...] = (1.0,)
    """Relative speeds of device classes; each vehicle's class is drawn at random."""
    deadline: float = number(0.0, "[0, inf)", "(0: no deadline)")
    """Time for local training, in steps of a device of speed 1; 0: no deadline."""
    relative_deadline: float = number(0.0, "[0, inf)", "(0: no deadline)")
    """Time for local training, as a multiple of the time that a device of speed 1 needs for the
    vehicle's steps; 0: no such deadline. With 1, a device of speed 0.5 takes half of its steps."""
    stragglers: str = choice("partial", "drop")
    """Whether a vehicle that misses the deadline sends its partial update or none ("drop")."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = len(self.speeds) >= 1 and all(0 < speed < inf for speed in self.speeds)
        check(self, "speeds", positive, "one or more finite speeds above 0, such as (1.0, 0.5)")
