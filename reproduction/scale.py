"""Size of a reproduction: seconds, hours, or the paper's own rounds and seeds."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

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


def _frozen(value: Any) -> Any:
    """Return a value of TOML with tuples in place of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_TABLES = tomllib.loads(files("reproduction").joinpath("scales.toml").read_text(encoding="utf-8"))
SCALES: Final[dict[str, Scale]] = {
    name: Scale(name=name, **{field: _frozen(value) for field, value in table.items()})
    for name, table in _TABLES.items()
}


def scale_of(name: str) -> Scale:
    """Return the scale called `name`."""
    if name not in SCALES:
        raise SettingError(unknown("scale", name, SCALES))
    return SCALES[name]
