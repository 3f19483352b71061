"""A real fleet whose replies in the clear are added up on their way, as the loop sees it.

Relays pass on sums (`sums`), so the server has what it would have under masks: the mean of the
replies in the place of each, and the errors of the fleet as a whole. Beyond that it has a row of
records of every vehicle, and knows how many windows each has.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from typing import ClassVar

from fedwatt.deploy.kept_sums import SecretSum
from fedwatt.deploy.quorum import Unanswered
from fedwatt.deploy.road_fleet import RoadFleet
from fedwatt.deploy.secure_fleet import SecureFleet
from fedwatt.engine.call import Call
from fedwatt.errors import SettingError
from fedwatt.federation import State
from fedwatt.federation.port import Present
from fedwatt.federation.work import Work
from fedwatt.methods import Method


class SummedFleet(SecureFleet):
    """Answers for a real fleet of which sums and small rows are seen."""

    fewest: ClassVar[int] = 1

    def check(self, method: Method) -> None:
        """Refuse what cannot work in rounds of these vehicles, and what cannot be added up."""
        RoadFleet.check(self, method)
        if fault := adding_fault(method):
            raise SettingError(f"Method '{method.name}' through relays: {fault}")

    def present(self, state: State | None) -> Present:
        """Who is connected now, each with the windows that it has."""
        return RoadFleet.present(self, state)

    def replies(
        self, state: State, present: Present, called: Mapping[str, Call], wanted: int
    ) -> Work | Unanswered:
        """The sum over the vehicles called; the round is asked again where too few are in it."""
        work = super().replies(state, present, called, wanted)
        if isinstance(work, Unanswered):
            return work
        name = present.members.name
        pairs = zip(work.calls, work.counted, strict=True)
        counted = frozenset(name(call.vehicle) for call, counts in pairs if counts)
        few = len(counted) < min(self.config.deploy.quorum, len(called))
        return Unanswered(counted) if few else work

    def _means(self, found: SecretSum, names: Mapping[str, Call], population: int) -> Work:
        """As under masks, with the rows that relays passed on."""
        work = super()._means(found, names, population)
        columns = [*(column.name for column in self.method.records), "drift"]
        name = {call: own for own, call in names.items()}
        unknown = (nan,) * len(columns)
        rows = [found.rows.get(name[call], unknown) for call in work.calls]
        return replace(work, columns={c: [row[k] for row in rows] for k, c in enumerate(columns)})


def adding_fault(method: Method) -> str:
    """Why a method cannot do with what relays add up; empty if it can.

    >>> from fedwatt.methods import get
    >>> adding_fault(get("fo-ri-fedavg"))
    ''
    >>> print(adding_fault(get("fedavg@median")))
    Median compares single replies, and a relay passes on their sum. Leave out the defence, or
    connect all vehicles to the server itself and set deploy.relays = 0.
    """
    if method.defence is not None:
        return (
            f"{type(method.defence).__name__} compares single replies, and a relay passes on their "
            "sum. Leave out the defence, or connect all vehicles to the server itself and set "
            "deploy.relays = 0."
        )
    if method.server.private:
        return (
            "its noise is added by vehicles, under masks, wherever there are relays. Set "
            "secure.enabled = true."
        )
    return method.server.sum_fault()
