"""Settings that a vehicle knows a model by."""

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.configuration import settings_digest
from fedwatt.runs.config import from_tables, to_toml

TEXT = to_toml(from_tables({"training": {"rounds": 7}, "method": [{"name": "fo-ri-fedavg"}]}))


@pytest.mark.parametrize(
    "line",
    ["patience = 0\n", "mixture = false\n", "alpha = 0.8\n", 'device = "auto"\n', "bits = 48\n"],
)
def test_a_run_goes_on_after_an_update_that_brings_a_setting(line: str) -> None:
    assert TEXT.count(line) == 1
    assert settings_digest(TEXT.replace(line, "")) == settings_digest(TEXT)


def test_a_run_goes_on_after_an_update_that_brings_a_section() -> None:
    begin = TEXT.index("[model]")
    before = TEXT[:begin] + TEXT[TEXT.index("\n[", begin) :]
    assert "mixture" not in before
    assert settings_digest(before) == settings_digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rounds = 7", "rounds = 8"),
        ("rounds = 7\n", ""),
        ("bits = 48", "bits = 64"),
        ("alpha = 0.8", "alpha = 0.7"),
        ('name = "fo-ri-fedavg"', 'name = "ri-fedavg"'),
        ('label = "fo-ri-fedavg"', 'label = "other"'),
        ("    1,\n    2,\n    3,\n", "    1,\n    2,\n"),
    ],
)
def test_other_settings_are_another_run(old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert settings_digest(TEXT.replace(old, new)) != settings_digest(TEXT)


def test_deadlines_and_unknown_methods_are_read_all_the_same() -> None:
    later = TEXT.replace("round_seconds = ", "round_seconds = 1")
    assert later != TEXT and settings_digest(later) == settings_digest(TEXT)
    unknown = TEXT.replace('name = "fo-ri-fedavg"', 'name = "nobody knows"')
    assert settings_digest(unknown) != settings_digest(TEXT)
