"""Vehicles whose rules have begun a round, before their first step."""

from dataclasses import dataclass

from fedwatt.engine.call import Call
from fedwatt.engine.job import Job
from fedwatt.methods.rule import Rows, Start


@dataclass(frozen=True, eq=False)
class Prepared:
    """P vehicles, those with the most steps first."""

    calls: tuple[Call, ...]
    start: Start
    memory: Rows
    job: Job
