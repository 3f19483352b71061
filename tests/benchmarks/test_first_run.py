"""The README's first paragraph is what is on record of the first run."""

import json

from benchmarks.first_run import README, RECORD, outdated
from fedwatt.runs.config import RunConfig, to_tables

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_readme_says_what_is_on_record() -> None:
    readme = README.read_text(encoding="utf-8")
    assert not outdated(readme, RECORDED)
    assert outdated(readme, RECORDED | {"headline": "Federating gains 90.0 %"})


def test_what_is_on_record_is_the_default_run() -> None:
    now = to_tables(RunConfig())
    rates = {method["label"]: method["rate"] for method in now["method"]}
    assert RECORDED["rates"] == rates
    assert (RECORDED["fleet"], RECORDED["seeds"]) == (now["fleet"], now["seeds"])
    assert RECORDED["rounds"] == now["training"]["rounds"]
