"""Runs with a buffer in place of rounds, from a configuration to a continued run folder."""

from pathlib import Path

import pytest

from fedwatt.errors import SettingError
from fedwatt.runs.config import from_tables, from_toml, override, to_toml
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from tests.runs.test_execute import Silent, results

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 6
[data]
window = 10
stride = 40
[model]
hidden = [8, 4]
[training]
rounds = 6
participation = 0.7
batch = 16
[availability]
speeds = [1.0, 0.5]
reply_loss = 0.1
[asynchronous]
buffer = 3
[[method]]
name = "fedavg@median"
[[method]]
name = "moon"
"""


def test_a_buffered_run_is_continued_bit_for_bit(tmp_path: Path) -> None:
    Run(from_toml(CONFIG), out=tmp_path / "whole", observer=Silent()).execute()
    cut = tmp_path / "cut"
    for stop_after in (2, 6):
        with pytest.raises(KeyboardInterrupt):
            Run(
                from_toml(CONFIG), out=cut, observer=Silent(stop_after), resume=stop_after > 2
            ).execute()
    Run(from_toml(CONFIG), out=cut, observer=Silent(), resume=True).execute()
    assert results(cut) == results(tmp_path / "whole")
    rounds = read_table(cut, "rounds").to_pylist()
    assert all(row["clock"] > 0 for row in rounds if row["round"])
    assert any(row["staleness"] for row in read_table(cut, "clients").to_pylist())


def test_settings_come_back_from_toml() -> None:
    table = {"method": [{"name": "fedavg+fractional@trimmed+adam"}]}
    label = "fedavg+fractional@trimmed+adam"
    inputs = [f"{label}.trim=0.3", f"{label}.alpha=0.7", "asynchronous.max_staleness=4"]
    config = from_tables(override(table, inputs))
    (choice,) = config.methods
    assert choice.method.composition == "Fractional → TrimmedMean → Adam"
    assert (choice.method.settings["trim"], choice.method.settings["alpha"]) == (0.3, 0.7)
    assert config.asynchronous.max_staleness == 4
    assert from_toml(to_toml(config)) == config


def test_an_impossible_method_is_refused_before_any_work(tmp_path: Path) -> None:
    # fedavg would train first, and for long; the refusal must not wait for it.
    for name, reason in (("scaffold", "would be stale"), ("fedavg@krum", "full buffer brings 3")):
        config = from_toml(CONFIG.replace('"moon"', f'"{name}"'))
        with pytest.raises(SettingError, match=reason):
            Run(config, out=tmp_path / name, observer=Silent()).execute()
        assert not (tmp_path / name).exists()
