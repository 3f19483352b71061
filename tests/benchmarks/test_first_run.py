"""The README's first paragraph is what is on record of the first run."""

import json

from benchmarks.first_run import README, RECORD, first_config, outdated, settings

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_readme_says_what_is_on_record() -> None:
    readme = README.read_text(encoding="utf-8")
    assert not outdated(readme, RECORDED)
    assert outdated(readme, RECORDED | {"headline": "Federating gains 90.0 %"})


def test_what_is_on_record_is_the_default_run() -> None:
    now = settings(first_config())
    assert {name: RECORDED[name] for name in now} == now


def test_the_record_has_every_stage() -> None:
    assert list(RECORDED["stages"]) == [
        "mean of the vehicle",
        "local-only model",
        "shared model",
        "with elevation",
        "with personalisation",
    ]
