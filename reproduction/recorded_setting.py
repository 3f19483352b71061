"""The setting that records were made in: kept beside them, or inferred from what was trained.

Studies of fleets, kinds and sizes train on a dataset of their own. Their passenger cells at K = 10
are the tuned cells that the main results would have there, so a dataset does not count as one of
the main results' because it occurs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reproduction.data import PLAIN, RICH
from reproduction.lab import Lab
from reproduction.main_results import plain, tuned
from reproduction.scale import Scale
from reproduction.study import METHODS, Setting


def setting_of(lab: Lab) -> Setting:
    """The setting that a lab's records were made in."""
    return from_table(lab.scale, lab.setting) if lab.setting else guessed(lab)


def from_table(scale: Scale, table: Mapping[str, Any]) -> Setting:
    """The setting that `Setting.table` took apart."""
    return Setting(
        scale,
        tuple(table["ved"]),
        tuple(table["eved"]),
        str(table["fleet"]),
        tuple(m for m in METHODS if m in table["methods"]),
    )


def guessed(lab: Lab) -> Setting:
    """From the cells of the main results; for records that do not tell their setting."""
    other = {c.dataset for c in lab.results if c.kind != "passenger" or c.vehicles > 10}
    main = [d for d in (*PLAIN, *RICH) if _of_main_results(lab, d, d in other)]
    fleets = [d for d in ("ved-electrified", "synthetic") if d in other]
    methods = [m for m in METHODS if any(c.method == m for c in lab.results)]
    plain_sets = _among(main, PLAIN) or tuple(fleets[:1]) or ("synthetic",)
    fleet = (*fleets, "synthetic" if "synthetic" in main else "ved-electrified")[0]
    return Setting(lab.scale, plain_sets, _among(main, RICH), fleet, tuple(methods) or METHODS)


def _of_main_results(lab: Lab, dataset: str, other: bool) -> bool:
    """Whether methods ran at the paper's settings here; `other`: studies of fleets ran here, too.

    A tuned cell whose tuning chose the paper's settings is one that those studies need as well.
    """
    ran = [m for m in METHODS if lab.get(plain(dataset, m)) is not None]
    if not other:
        return bool(ran)
    chosen = {m: lab.get(tuned(dataset, m)) for m in ran}
    return any(r is None or dict(r.cell.settings) for r in chosen.values())


def _among(found: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    return tuple(dataset for dataset in found if dataset in known)
