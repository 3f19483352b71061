"""How a federation trains, and which vehicles are there to do it."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check
from fedwatt.methods.schedule import SCHEDULES
from fedwatt.models import LOSSES


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rounds and the work inside a round; the paper's values where it has them."""

    rounds: int = 40
    """T"""
    participation: float = 0.3
    """C, the share of available vehicles that train in a round."""
    sampling: str = "fixed"
    """"fixed" calls ⌈C·|A_t|⌉ vehicles; "poisson" calls each one with probability C on its own."""
    epochs: int = 1
    """E, passes over a vehicle's windows in a round."""
    steps: int = 0
    """H, local steps in a round whatever a vehicle's size; 0: `epochs` decides."""
    batch: int = 64
    """B, windows a step."""
    rate: float = 0.05
    """η₀"""
    schedule: str = "inverse-sqrt"
    """η_t = η₀/√(t+1), or "constant"."""
    loss: str = "mse"
    precision: str = "float32"
    tf32: bool = False
    """Local steps' float32 products in TF32 on a GPU that has it: quicker, three digits."""
    deterministic: bool = False
    """Whether a vehicle's steps are the same to the last bit whoever shares its stack, on a GPU
    and where torch takes the steps; slower there. Steps in C always are."""
    evaluate_every: int = 1
    """Rounds between evaluations; the last round is always evaluated."""
    evaluate_vehicles: int = 0
    """Vehicles that a round's errors are taken from, always the same ones; 0: all, and on a real
    fleet without masks at most 200."""
    patience: int = 0
    """Rounds without a lower validation RMSE after which a run stops early, each seed for itself;
    seen at evaluations; 0: all rounds are done."""

    def __post_init__(self) -> None:
        check(self, "rounds", self.rounds >= 1, "at least 1")
        check(self, "participation", 0 < self.participation <= 1, "in (0, 1]")
        known = self.sampling in ("fixed", "poisson")
        check(self, "sampling", known, "'fixed' or 'poisson'")
        check(self, "epochs", self.epochs >= 1, "at least 1")
        check(self, "steps", self.steps >= 0, "at least 0 (0: epochs decide)")
        check(self, "batch", self.batch >= 1, "at least 1 window")
        check(self, "rate", 0 < self.rate < inf, "above 0 and finite")
        check(self, "schedule", self.schedule in SCHEDULES, " or ".join(map(repr, SCHEDULES)))
        check(self, "loss", self.loss in LOSSES, " or ".join(map(repr, LOSSES)))
        known = self.precision in ("float32", "float64")
        check(self, "precision", known, "'float32' or 'float64'")
        check(self, "evaluate_every", self.evaluate_every >= 1, "at least 1 round")
        check(self, "patience", self.patience >= 0, "at least 0 rounds (0: all rounds are done)")
        check(self, "evaluate_vehicles", self.evaluate_vehicles >= 0, "at least 0 (0: all)")


@dataclass(frozen=True, kw_only=True)
class Asynchronous:
    """Buffered asynchronous aggregation (FedBuff) in place of rounds, where `buffer` is set."""

    buffer: int = 0
    """Kb, the replies that make the next model (10 in the literature); 0: synchronous rounds."""
    concurrency: int = 0
    """Mc, vehicles at work at any time; 0: as many as `participation` calls for a round."""
    staleness_exponent: float = 0.5
    """a; a reply to a model σ versions old counts (1 + σ)^-a. 0: age does not matter."""
    max_staleness: int = 0
    """σ_max, the age above which a reply is dropped; 0: none is."""
    weighting: str = "uniform"
    """"uniform", or "windows": a reply counts n_k over the fleet's mean."""
    jitter: float = 0.1
    """Standard deviation of the logarithm of a vehicle's time for the same work."""

    def __post_init__(self) -> None:
        check(self, "buffer", self.buffer >= 0, "at least 0 replies (0: synchronous rounds)")
        check(self, "concurrency", self.concurrency >= 0, "at least 0 (0: participation decides)")
        check(self, "staleness_exponent", 0 <= self.staleness_exponent < inf, "at least 0")
        check(self, "max_staleness", self.max_staleness >= 0, "at least 0 (0: no limit)")
        known = self.weighting in ("uniform", "windows")
        check(self, "weighting", known, "'uniform' or 'windows'")
        check(self, "jitter", 0 <= self.jitter < inf, "at least 0")


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Which vehicles are reachable, which replies arrive and how fast vehicles compute.

    The defaults are an ideal fleet: all vehicles there, equally fast, no reply lost.
    """

    p_leave: float = 0.0
    """Probability that an available vehicle is gone in the next round."""
    p_join: float = 0.0
    """Probability that an absent vehicle is back in the next round."""
    initially: float = 1.0
    """Share of vehicles available in the first round."""
    reply_loss: float = 0.0
    """Probability that a participant's reply never arrives."""
    speeds: tuple[float, ...] = (1.0,)
    """Relative speeds of the device classes; each vehicle is of one class, drawn at random."""
    deadline: float = 0.0
    """Time for local work, in steps of a device of speed 1; 0: no deadline."""
    own_deadline: float = 0.0
    """Time for local work, as a multiple of what a device of speed 1 needs for the vehicle's own;
    0: no such deadline. With 1, a device half as fast takes half of its steps."""
    stragglers: str = "partial"
    """A vehicle that cannot finish in time sends what it has ("partial") or nothing ("drop")."""

    def __post_init__(self) -> None:
        for name in ("p_leave", "p_join", "reply_loss"):
            check(self, name, 0 <= getattr(self, name) <= 1, "a probability in [0, 1]")
        check(self, "initially", 0 < self.initially <= 1, "in (0, 1]")
        positive = len(self.speeds) >= 1 and all(0 < speed < inf for speed in self.speeds)
        check(self, "speeds", positive, "one or more finite speeds above 0, such as (1.0, 0.5)")
        for name in ("deadline", "own_deadline"):
            check(self, name, 0 <= getattr(self, name) < inf, "at least 0 (0: no deadline)")
        known = self.stragglers in ("partial", "drop")
        check(self, "stragglers", known, "'partial' or 'drop'")
