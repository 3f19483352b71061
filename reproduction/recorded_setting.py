"""The setting that records were made in, which is kept beside them."""

from collections.abc import Mapping
from typing import Any

from fedwatt.errors import RunError
from reproduction.cell import METHODS
from reproduction.lab import Lab
from reproduction.scale import Scale
from reproduction.study import Setting


def setting_of(lab: Lab) -> Setting:
    """Return the setting that a lab's records were made in."""
    if not lab.setting:
        raise RunError(f"{lab.records or lab.out} holds records that do not tell their setting.")
    return from_table(lab.scale, lab.setting)


def from_table(scale: Scale, table: Mapping[str, Any]) -> Setting:
    """Return the setting that `Setting.table` took apart."""
    return Setting(
        scale,
        tuple(table["ved"]),
        tuple(table["eved"]),
        str(table["fleet"]),
        tuple(m for m in METHODS if m in table["methods"]),
    )
