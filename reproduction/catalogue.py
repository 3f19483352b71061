"""All studies, in the order of the paper."""

from collections.abc import Sequence
from typing import Final

from fedwatt.errors import SettingError, unknown
from reproduction import (
    ablations,
    budgets,
    by_round,
    churn,
    conditions,
    contests,
    controls,
    drift,
    engagement,
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
        drift.DRIFT_SHARES,
        ablations.KEY,
        ablations.ALPHA,
        ablations.LAMBDA,
        ablations.PROBE,
        ablations.SAFE,
        ablations.GATE,
        mechanism.COUPLING,
        mechanism.TERTILES,
        mechanism.EARLY,
        overhead.ROUND_TIME,
        overhead.COMPONENTS,
        overhead.SCALABILITY,
        conditions.PARTICIPATION,
        conditions.DEVICES,
        conditions.VEHICLE_TYPES,
        latency_results.LATENCY,
        probe_cost.PROBE_OVERHEAD,
        probe_cost.SENSITIVITY,
        churn.CHURN_STUDY,
        churn.ASYMMETRIC,
        churn.CHURN_DRIFT,
        conditions.ARCHITECTURES,
        conditions.SCALING,
        main_results.SEEDS,
        controls.STRESS,
        controls.CONTROLS,
        contests.FAIR,
        rates.RATES,
        contests.STRIDE,
        contests.WORKLOAD,
        contests.CAUSAL,
        contests.SKEW,
        budgets.BUDGET,
        splits.SPLITS,
        engagement.ENGAGEMENT,
    )
}


def select(names: Sequence[str]) -> list[Study]:
    """The studies called `names`, in the order of the paper; "all" is all of them."""
    for name in names:
        if name != "all" and name not in STUDIES:
            hint = "'fedwatt reproduce --list' lists all."
            raise SettingError(unknown("study", name, STUDIES, hint))
    wanted = set(STUDIES) if "all" in names else set(names)
    return [study for name, study in STUDIES.items() if name in wanted]
