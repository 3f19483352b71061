"""A fleet and a plan small enough to play a run in a second or two."""

from dataclasses import replace

import pytest

from comparison.datasets import DATASETS
from comparison.plan import Plan
from fedwatt.synthetic.fleet import synthetic_fleet
from fedwatt.windows import Fleet

TINY = Plan(trials=2, further=0, rounds=2, steps=2, every=1, fine_tuning=(2,), seeds=(1, 2))


@pytest.fixture(scope="session")
def few_cars() -> Fleet:
    settings = replace(DATASETS["synthetic base"].settings, held_out=1, stride=30)
    return synthetic_fleet(4, settings=settings, trips=4)
