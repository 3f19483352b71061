"""Relays in one process that answer for vehicles which do not exist, for loads on a real centre.

    python -m benchmarks.light_relays DEPOT HOST:PORT RELAYS VEHICLES

Each has its own key, TLS connection and looks for questions, as a light vehicle has, and answers
for `VEHICLES` of 100 windows each with the words of a real relay: the sum of displacements that are
0, and of errors that are nobody's.
"""

import asyncio
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict

import fedwatt
from benchmarks.light_vehicles import ERRORS, LightVehicle, vehicles
from fedwatt.deploy.configuration import configuration_of
from fedwatt.deploy.error_vectors import judging_values, strata_values
from fedwatt.deploy.messages import Content, all_records
from fedwatt.deploy.parts import Part, SumQuestion
from fedwatt.metrics import ErrorSums
from fedwatt.privacy.fixed_point import Layout, Words, reduced


class LightRelay(LightVehicle):
    """A relay whose vehicles do not exist."""

    behind = 100

    @property
    def names(self) -> list[str]:
        """Its vehicles."""
        return [f"{self.name}-{number:04d}" for number in range(self.behind)]

    def _records(self, kind: str, question: Content) -> RecordDict:
        return all_records([self._content(kind, question)])[0]

    def _content(self, kind: str, question: Content) -> Content:
        names = self.names
        if kind == "enrol":
            features = list(configuration_of(question).data.columns)
            return Content({
                "vehicle": self.name, "enough": True, "features": features, "simulated": True,
                "version": fedwatt.__version__, "relay": True,
            })  # fmt: skip
        if kind == "relay-roster":
            yes = [True] * len(names)
            values: dict[str, Any] = {"names": names, "there": yes, "simulated": yes, "levels": 1}
            return Content(values, {"windows": np.tile(np.array([100, 20, 20]), (len(names), 1))})
        asked, called = SumQuestion.read(question)
        layout = asked.layout
        words = _words(asked.kind, tuple(layout.fields.items()), layout.vehicles, layout.bits)
        part = Part(
            words=reduced(words * np.uint64(len(called)), layout.bits),
            counted=tuple(called),
            rows={name: (0.0,) for name in called} if "train" in asked.kind else {},
        )
        return part.reply(called, layout.bits)


@lru_cache
def _words(kind: str, fields: tuple[Any, ...], vehicles: int, bits: int) -> Words:
    """What one vehicle adds."""
    layout = Layout(dict(fields), vehicles=vehicles, bits=bits)
    errors = ErrorSums.from_array(ERRORS)
    if "train" in kind:
        return layout.encode(
            {n: np.full(size, 100.0 * (n == "weight")) for n, (size, _) in layout.fields.items()}
        )
    if "evaluate" in kind:
        return layout.encode(judging_values(errors, errors, 100))
    return layout.encode(strata_values({"all": errors}))


async def main(words: list[str]) -> None:
    """Let the relays live until this process is ended."""
    depot, address, relays, behind = words
    LightRelay.behind = int(behind)
    light = vehicles(Path(depot), address, range(int(relays)), 5.0, 0)
    own = [LightRelay(one.name, one.link, 5.0, "") for one in light]
    await asyncio.gather(*(one.live(number / 100) for number, one in enumerate(own)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
