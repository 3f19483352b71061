"""One recommended method: the same in every place that names one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.evaluate import recommend
from comparison.page import PAGE, README
from comparison.records import RECORDS, read_records
from fedwatt.cli.data.importing import next_commands
from fedwatt.deploy.server.execute import refuse_undeployable
from fedwatt.methods.catalogue import RECOMMENDED
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.config import RunConfig


def test_the_recommendation_is_what_the_records_give() -> None:
    assert recommend(read_records(RECORDS)) == RECOMMENDED


def test_readme_and_page_name_it() -> None:
    for file in (README, PAGE):
        named = re.findall(r"Recommended method: `([^`]+)`", file.read_text(encoding="utf-8"))
        assert named == [RECOMMENDED], file


def test_the_next_commands_of_an_import_train_it() -> None:
    run, *_ = next_commands(Path("fleets/own"), Path("fleets/own/car-1"), "trip-7")
    assert run == "fedwatt run --data fleets/own --out runs/own"  # the recipe names the method


def test_a_run_trains_it_unless_told_otherwise() -> None:
    assert RunConfig().methods[0].method.name == RECOMMENDED


@pytest.mark.parametrize("secure", [True, False])
def test_a_deployment_accepts_it_by_default(secure: bool) -> None:
    default = RunConfig()
    config = replace(
        default, methods=default.methods[:1], seeds=(1,), secure=SecureSettings(enabled=secure)
    )
    assert config.methods[0].method.name == RECOMMENDED
    refuse_undeployable(config)  # raises if it is refused
