"""One recommended method: the same in every place that names one."""

import re
from pathlib import Path

from comparison.evaluate import recommend
from comparison.page import PAGE, README
from comparison.records import RECORDS, read_records
from fedwatt.cli.data.understood import next_commands
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.policy import Policy
from fedwatt.methods.recommended import RECOMMENDED
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.config import RunConfig


def test_the_recommendation_is_what_the_records_give() -> None:
    assert recommend(read_records(RECORDS)) == RECOMMENDED


def test_readme_and_page_name_it() -> None:
    for file in (README, PAGE):
        named = re.findall(r"Recommended method: `([^`]+)`", file.read_text(encoding="utf-8"))
        assert named == [RECOMMENDED], file


def test_the_next_commands_of_an_import_train_it() -> None:
    run, *_ = next_commands(Path("fleets/own"), Path("fleets/own/car-1"), "trip-7", "")
    assert f"--method {RECOMMENDED} " in run


def test_a_run_trains_it_unless_told_otherwise() -> None:
    assert RunConfig().methods[0].method.name == RECOMMENDED


def test_a_deployed_vehicle_accepts_it_by_default(tmp_path: Path) -> None:
    config = RunConfig(methods=RunConfig().methods[:1], secure=SecureSettings(enabled=True))
    assert config.methods[0].method.name == RECOMMENDED
    Guard(Policy(), Ledger(tmp_path)).configuration(config)  # raises if refused
