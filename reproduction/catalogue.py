"""All studies, in the order of the paper."""

from collections.abc import Sequence
from typing import Final

from fedwatt.errors import SettingError, unknown
from reproduction import (
    by_round,
    contests,
    controls,
    drift,
    engagement,
    grids,
    latency_results,
    main_results,
    mechanism,
    overhead,
    probe_cost,
    rates,
    search_results,
    splits,
)
from reproduction.study import Study

STUDIES: Final[dict[str, Study]] = {
    study.name: study
    for study in (
        main_results.MAIN,
        search_results.SEARCH,
        *by_round.BY_ROUND,
        drift.DRIFT,
        grids.STUDIES["drift-shares"],
        grids.STUDIES["ablations"],
        grids.STUDIES["alpha"],
        grids.STUDIES["lambda"],
        grids.STUDIES["probe-frequency"],
        grids.STUDIES["safeguards"],
        grids.STUDIES["gate"],
        mechanism.COUPLING,
        mechanism.TERTILES,
        mechanism.EARLY,
        overhead.ROUND_TIME,
        overhead.COMPONENTS,
        overhead.SCALABILITY,
        grids.STUDIES["participation"],
        grids.STUDIES["devices"],
        grids.STUDIES["vehicle-types"],
        latency_results.LATENCY,
        probe_cost.PROBE_OVERHEAD,
        probe_cost.SENSITIVITY,
        grids.STUDIES["churn"],
        grids.STUDIES["churn-asymmetric"],
        grids.STUDIES["churn-drift"],
        grids.STUDIES["architectures"],
        grids.STUDIES["scaling"],
        main_results.SEEDS,
        controls.STRESS,
        controls.CONTROLS,
        contests.FAIR,
        rates.RATES,
        contests.STRIDE,
        contests.WORKLOAD,
        contests.CAUSAL,
        contests.SKEW,
        splits.SPLITS,
        engagement.ENGAGEMENT,
    )
}


def select(names: Sequence[str]) -> list[Study]:
    """Return the studies called `names`, in the order of the paper; "all" is all of them."""
    for name in names:
        if name != "all" and name not in STUDIES:
            hint = "'fedwatt reproduce --list' lists all."
            raise SettingError(unknown("study", name, STUDIES, hint))
    selected = set(STUDIES) if "all" in names else set(names)
    return [study for name, study in STUDIES.items() if name in selected]
