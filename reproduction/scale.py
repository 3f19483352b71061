"""Size of a reproduction: seconds, hours, or the paper's own rounds and seeds."""

from dataclasses import dataclass
from typing import Final

from fedwatt.errors import SettingError, unknown

MANY: Final = 20
"""More vehicles than this make a large fleet."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Rounds, seeds and how densely windows are cut; what the paper fixes is the same at all."""

    name: str
    what_for: str
    rounds: int
    """T"""
    seeds: tuple[int, ...]
    evaluate_every: int
    stride: int
    """Seconds between the training windows of recorded fleets; the paper has 1."""
    evaluation_stride: int
    synthetic_trips: int
    """Trips of a synthetic vehicle."""
    many_trips: int
    """Trips of a synthetic vehicle in fleets of more than `MANY`."""
    recurrent_rounds: int
    """Rounds of GRU and LSTM, which take far longer than the MLP."""
    recurrent_stride: int
    """Seconds between their training windows."""
    synthetic_stride: int
    synthetic_evaluation_stride: int
    trials: int
    """Trials of each method where all hyperparameters are tuned, the configured one included."""
    searched: tuple[str, ...]
    """Datasets on which they are; on the others each method's rate is."""
    unsearched: tuple[str, ...]
    """Methods of which only the rate is tuned there as well."""
    tuning_rounds: int
    tuning_seeds: tuple[int, ...]
    """Others than the ones reported, and used for nothing else."""
    rates: tuple[float, ...]
    """η₀ tried where only the rate is chosen, besides the paper's 0.05."""
    beyond: tuple[float, ...]
    """η₀ that are tried and not chosen from, to see whether the others end too early."""
    rate_seeds: tuple[int, ...]
    """Others than the ones reported."""
    rate_rounds: int
    """Rounds after which a rate is chosen."""
    few_seeds: tuple[int, ...]
    """Seeds of studies with many cells."""
    split_seeds: tuple[int, ...]
    """Seeds of each further split of the trips."""
    splits: tuple[int, ...]
    """Seeds of splits; the first is that of all other studies."""
    stride_rounds: int
    """Rounds of cells with windows a second apart, each of which has five times the steps; and
    after how many at most their rates are chosen."""
    printed_rounds: int
    """Rounds of the two methods that run once more as printed, with all seeds."""
    work_rounds: int
    """Rounds of such cells with other E and C."""
    map_rounds: int
    """Rounds of the map of engagement."""
    map_seeds: tuple[int, ...]
    """Its seeds: its points are corrected together, so that two or three could show nothing."""
    strides: tuple[tuple[str, int], ...] = ()
    """Datasets whose training windows lie further apart."""
    timing_rounds: int = 20
    """Rounds of cells that are there for their time alone."""
    latency_windows: int = 10_000
    probe: tuple[tuple[str, int], ...] = ()
    """Settings of a smaller roughness probe than the paper's, where a cell has none of its own."""
    deterministic: bool = False
    """Whether a cell has the same bits whoever shares its stack on a GPU, where that is slower."""
    second_dataset: bool = True
    """Whether what the paper shows on eVED is run, too, in studies of many cells."""

    def at(self, round: int) -> int:
        """Return the paper's round of 300 at this scale; at least 1.

        >>> SCALES["paper"].at(200), SCALES["smoke"].at(200)
        (200, 4)
        """
        return max(1, min(self.rounds, -(-round * self.rounds // 300)))


SCALES: Final[dict[str, Scale]] = {
    scale.name: scale
    for scale in (
        Scale(
            name="smoke",
            what_for="does everything run? Minutes on two cores; its numbers mean nothing",
            rounds=6,
            seeds=(1, 2),
            evaluate_every=1,
            stride=60,
            evaluation_stride=60,
            synthetic_trips=8,
            many_trips=4,
            recurrent_rounds=2,
            recurrent_stride=60,
            synthetic_stride=10,
            synthetic_evaluation_stride=30,
            trials=2,
            searched=("ved", "synthetic"),
            unsearched=(),
            tuning_rounds=3,
            tuning_seeds=(11,),
            rates=(0.01,),
            beyond=(),
            rate_seeds=(21,),
            rate_rounds=2,
            few_seeds=(1, 2),
            split_seeds=(1,),
            splits=(0,),
            stride_rounds=2,
            printed_rounds=2,
            work_rounds=1,
            map_rounds=2,
            map_seeds=(1,),
            timing_rounds=4,
            latency_windows=640,
            probe=(("directions", 4), ("points", 20), ("probe_batch", 32)),
            second_dataset=False,
        ),
        Scale(
            name="paper",
            what_for="the paper's T = 300 and five seeds; meant for a GPU",
            rounds=300,
            seeds=(1, 2, 3, 4, 5),
            evaluate_every=5,
            stride=5,
            evaluation_stride=10,
            synthetic_trips=40,
            many_trips=40,
            recurrent_rounds=100,
            recurrent_stride=20,
            synthetic_stride=5,
            synthetic_evaluation_stride=10,
            trials=30,
            searched=("ved",),
            unsearched=("moon", "fedel"),
            tuning_rounds=300,
            tuning_seeds=(11, 12, 13, 14, 15),
            rates=(0.0015, 0.005, 0.015),
            beyond=(0.15,),
            rate_seeds=(21,),
            rate_rounds=150,
            few_seeds=(1, 2, 3),
            split_seeds=(1, 2),
            splits=(0, 1, 2, 3, 4),
            stride_rounds=100,
            printed_rounds=300,
            work_rounds=20,
            map_rounds=150,
            map_seeds=(1, 2, 3, 4, 5),
            strides=(("ved-electrified", 10),),
        ),
    )
}


def scale_of(name: str) -> Scale:
    """Return the scale called `name`."""
    if name not in SCALES:
        raise SettingError(unknown("scale", name, SCALES))
    return SCALES[name]
