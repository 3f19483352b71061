"""Whose trips a field was learned from, so that it is never judged on them.

A field is learned from training trips. Used in a run that splits the same vehicles' trips another
way, it would have seen the energy of that run's test trips.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedwatt.data import DataSettings
from fedwatt.errors import SettingError

log = logging.getLogger("fedwatt.terrain")


@dataclass(frozen=True)
class Provenance:
    """The vehicles that contributed to a field, and what decided on their training trips.

    `window` in samples: trips shorter than a window are in no split.
    """

    vehicles: frozenset[str]
    split: tuple[float, float, float]
    split_seed: int
    window: int

    @classmethod
    def by(cls, vehicles: Iterable[str], data: DataSettings) -> "Provenance":
        """The provenance of a field learned from these vehicles' training trips under `data`."""
        return cls(frozenset(vehicles), data.split, data.split_seed, data.window)

    def to_table(self) -> dict[str, Any]:
        """Plain values for the metadata of a file."""
        return asdict(self) | {"vehicles": sorted(self.vehicles)}

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> "Provenance":
        """The provenance that `to_table` wrote."""
        train, validation, test = (float(share) for share in table["split"])
        split_seed, window = int(table["split_seed"]), int(table["window"])
        return cls(frozenset(table["vehicles"]), (train, validation, test), split_seed, window)

    def refuse(
        self, file: Path, vehicle: str, data: DataSettings, *, held_out: bool = False
    ) -> None:
        """Raise if the field of `file` knows trips that `vehicle` is judged on under `data`."""
        if vehicle not in self.vehicles:
            return
        if held_out:
            raise SettingError(
                f"The field {file} was learned from vehicle '{vehicle}', which this run holds out; "
                "learn it without that vehicle ('fedwatt terrain learn --held-out')."
            )
        own = Provenance.by(self.vehicles, data)
        if own == self:
            return
        differing = ", ".join(
            f"{name} is {_written(getattr(self, name))} there and {_written(getattr(own, name))} "
            "here"
            for name in ("split", "split_seed", "window")
            if getattr(self, name) != getattr(own, name)
        )
        raise SettingError(
            f"The field {file} was learned from vehicle '{vehicle}' with other training trips and "
            f"may know this run's test trips ({differing}); learn it with the run's split."
        )


def warn_unknown(file: Path) -> None:
    """Warn that a field does not say whose trips it was learned from."""
    log.warning(
        "The field %s does not say which trips it was learned from, so it may know the test trips "
        "of this run. 'fedwatt terrain learn' makes one that does.",
        file,
    )


def _written(value: object) -> str:
    return "/".join(f"{share:g}" for share in value) if isinstance(value, tuple) else str(value)
