"""Every method while vehicles come and go: symmetric and asymmetric churn, and drift under both."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from reproduction.conditions import Grid, best, few, flat, merged, tables
from reproduction.record import REACH
from reproduction.show import matrix
from reproduction.study import Findings, Setting, Study, View

CHURN = (0.0, 0.05, 0.10, 0.20)
LEAVING = ((0.05, 0.02), (0.10, 0.02), (0.20, 0.02))
"""Net loss: (p_leave, p_join)"""
JOINING = ((0.02, 0.05), (0.02, 0.10), (0.02, 0.20))


def churn_grid(setting: Setting, dataset: str) -> Grid:
    """As many leave as join."""
    return {
        m: [replace(best(setting, dataset, m), p_leave=p, p_join=p) for p in CHURN]
        for m in setting.methods
    }


def _asymmetric(pairs: Sequence[tuple[float, float]]) -> Callable[[Setting, str], Grid]:
    def grid(setting: Setting, dataset: str) -> Grid:
        return {
            m: [replace(best(setting, dataset, m), p_leave=x, p_join=y) for x, y in pairs]
            for m in setting.methods
        }

    return grid


net_loss, net_gain = _asymmetric(LEAVING), _asymmetric(JOINING)


def show_churn(view: View) -> Findings:
    """RMSE and D_cv by churn, symmetric."""
    return merged(
        [
            tables(
                view,
                f"churn-{dataset}",
                f"Symmetric churn on {dataset}",
                [f"p = {p:g}" for p in CHURN],
                churn_grid(view.setting, dataset),
                label="p_leave = p_join",
                note="The paper shows this in figures whose files are empty. Churn starts at its "
                "steady state, in which half of the vehicles are there.",
            )
            for place, dataset in view.setting.few_places[:1]
        ]
    )


def show_asymmetric(view: View) -> Findings:
    """RMSE under net loss and net gain."""
    parts = []
    for place, dataset in view.setting.few_places[:1]:
        for word, pairs, grid in (
            ("net loss", LEAVING, net_loss),
            ("net gain", JOINING, net_gain),
        ):
            rates = [f"{max(pair):.2f}" for pair in pairs]
            parts.append(
                tables(
                    view,
                    f"churn-{word.replace(' ', '-')}-{dataset}",
                    f"Asymmetric churn, {word}, on {dataset}",
                    [f"p = {rate}" for rate in rates],
                    grid(view.setting, dataset),
                    rmse=[(f"churn-asymmetric-{place.lower()}", f"{word} {r}") for r in rates],
                    label="p_leave" if word == "net loss" else "p_join",
                    note="All vehicles are there at first under net loss, half of them under net "
                    "gain; the paper does not say.",
                )
            )
    return merged(parts)


def drift_regimes(setting: Setting, dataset: str) -> dict[str, Grid]:
    """The regimes of the paper's two tables of drift under churn."""
    symmetric = churn_grid(setting, dataset)
    return {
        "0": {m: [cells[0]] for m, cells in symmetric.items()},
        "0.20": {m: [cells[-1]] for m, cells in symmetric.items()},
        "net loss": {m: [cells[-1]] for m, cells in net_loss(setting, dataset).items()},
        "net gain": {m: [cells[-1]] for m, cells in net_gain(setting, dataset).items()},
    }


def show_churn_drift(view: View) -> Findings:
    """D_cv(200) without churn and under severe churn."""
    blocks = []
    at = view.setting.scale.at(200)
    for place, dataset in view.setting.few_places[:1]:
        regimes = drift_regimes(view.setting, dataset)
        records = {
            m: [view.get(grid[m][0]) for grid in regimes.values()] for m in view.setting.methods
        }
        values = {
            m: [r.around("drift_cv", at, REACH) if r else {} for r in own]
            for m, own in records.items()
        }
        beside = [
            ("churn-drift-asymmetric" if "net" in regime else "churn-drift", f"{place} {regime}")
            for regime in regimes
        ]
        names = [regime if "net" in regime else f"churn {regime}" for regime in regimes]
        blocks.append(
            matrix(
                f"churn-drift-{dataset}",
                f"Dispersion of drift D_cv(200) under churn on {dataset}",
                names,
                records,
                values,
                unit="",
                digits=3,
                beside=beside,
                note="Mean over the rounds around t = 200. With half of ten vehicles there, "
                "a round has two participants.",
            )
        )
    return Findings(tuple(blocks))


CHURN_STUDY = Study(
    "churn", "Client churn, symmetric", few(churn_grid, first_only=True), show_churn, claims=("C1",)
)
ASYMMETRIC = Study(
    "churn-asymmetric",
    "Client churn, asymmetric: net loss and net gain",
    lambda setting: (
        few(net_loss, first_only=True)(setting) + few(net_gain, first_only=True)(setting)
    ),
    show_asymmetric,
    printed=("churn-asymmetric-ved", "churn-asymmetric-eved"),
    claims=("C1",),
)
CHURN_DRIFT = Study(
    "churn-drift",
    "Drift dispersion under churn",
    lambda setting: [
        cell
        for dataset in setting.ved[:1]
        for grid in drift_regimes(setting, dataset).values()
        for cell in flat(grid)
    ],
    show_churn_drift,
    printed=("churn-drift", "churn-drift-asymmetric"),
    claims=("C1",),
)
