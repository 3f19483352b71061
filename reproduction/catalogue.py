"""All studies, in the order of the paper."""

from collections.abc import Sequence
from typing import Final

from fedwatt.errors import SettingError, unknown
from reproduction.conditions import SPLITS
from reproduction.conditions import STUDIES as CONDITIONS
from reproduction.controls import CONTROLS, ENGAGEMENT, STRESS
from reproduction.coupling import COUPLING, EARLY, TERTILES
from reproduction.curves import BY_ROUND, DRIFT
from reproduction.grids import STUDIES as GRIDS
from reproduction.main_results import MAIN, SEEDS
from reproduction.overhead import (
    COMPONENTS,
    LATENCY,
    PROBE_OVERHEAD,
    ROUND_TIME,
    SCALABILITY,
    SENSITIVITY,
)
from reproduction.study import Study
from reproduction.tuning_results import RATES, SEARCH

ABLATIONS: Final = ("ablations", "alpha", "lambda", "probe-frequency", "safeguards", "gate")
CHURN: Final = ("churn", "churn-asymmetric", "churn-drift")
STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        MAIN,
        SEARCH,
        *BY_ROUND,
        DRIFT,
        GRIDS["drift-shares"],
        *(GRIDS[name] for name in ABLATIONS),
        COUPLING,
        TERTILES,
        EARLY,
        ROUND_TIME,
        COMPONENTS,
        SCALABILITY,
        GRIDS["participation"],
        GRIDS["devices"],
        GRIDS["vehicle-types"],
        LATENCY,
        PROBE_OVERHEAD,
        SENSITIVITY,
        *(GRIDS[name] for name in CHURN),
        GRIDS["architectures"],
        GRIDS["scaling"],
        SEEDS,
        STRESS,
        CONTROLS,
        CONDITIONS["fair"],
        RATES,
        CONDITIONS["stride"],
        CONDITIONS["workload"],
        CONDITIONS["causal"],
        CONDITIONS["skew"],
        SPLITS,
        ENGAGEMENT,
    )
}


def select(names: Sequence[str]) -> list[Study]:
    """Return the studies called `names`, in the order of the paper; "all" is all of them."""
    for name in names:
        if name != "all" and name not in STUDIES:
            hint = "'fedwatt reproduce --list' lists all."
            raise SettingError(unknown("study", name, STUDIES, hint))
    return [study for name, study in STUDIES.items() if name in names or "all" in names]
