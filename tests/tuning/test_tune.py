"""Tuning: equal budgets, the configured trial first, kills, what is stored."""

import json
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import pytest

from fedwatt.errors import RunError, SettingError
from fedwatt.methods import LocalRule, Method, get
from fedwatt.runs.config import from_toml
from fedwatt.runs.source import open_fleet
from fedwatt.settings import Range
from fedwatt.tuning import tune as module
from fedwatt.tuning.tune import (
    RATE,
    Trial,
    Tuned,
    ranges_of,
    scores,
    shown_score,
    tune,
    tuning_table,
)
from fedwatt.windows.targets import TARGETS

CONFIG = from_toml("""
seeds = [1, 2]
device = "cpu"
[fleet]
vehicles = 3
[data]
window = 10
stride = 40
[model]
hidden = [4]
[training]
rounds = 2
batch = 16
[[method]]
name = "fedavg"
[[method]]
name = "fedprox"
label = "pulled"
mu = 0.1
schedule = "constant"
""")


class Watcher:
    """Counts trials and may stop the study, as a kill between two trials would."""

    def __init__(self, stop_after: int = 0) -> None:
        self.trials = 0
        self.stop_after = stop_after

    def __call__(self, label: str, wanted: int, study: Tuned) -> None:
        if self.stop_after and self.trials == self.stop_after:
            raise KeyboardInterrupt
        self.trials += 1


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory) -> tuple[Path, list[Tuned]]:
    out = tmp_path_factory.mktemp("tune") / "study"
    return out, tune(CONFIG, out, trials=7, on_trial=Watcher())


def test_every_method_gets_the_same_number_of_trials(finished_study) -> None:
    _, result = finished_study
    assert [tuned.choice.label for tuned in result] == ["fedavg", "pulled"]
    assert [len(tuned.trials) for tuned in result] == [7, 7]
    for tuned in result:
        assert len({tuple(trial.values.values()) for trial in tuned.trials}) == 7
        for trial in tuned.trials:
            assert all(trial.values[name] in interval for name, interval in tuned.ranges.items())


def test_the_configured_method_is_the_first_trial(finished_study) -> None:
    _, result = finished_study
    assert result[0].trials[0].values == {"learning_rate": 0.05}
    assert result[1].trials[0].values == {"learning_rate": 0.05, "mu": 0.1}
    for tuned in result:
        assert tuned.best.score <= tuned.trials[0].score


def test_a_score_is_the_validation_error_of_the_final_models(finished_study) -> None:
    _, result = finished_study
    fleet = open_fleet(CONFIG)
    assert scores([result[1].tuned], CONFIG, fleet) == [
        pytest.approx(result[1].best.score, rel=1e-5)
    ]
    assert result[1].tuned.schedule == "constant"
    wild = replace(CONFIG.methods[0], learning_rate=1e6)
    assert scores([wild], CONFIG, fleet) == [inf]


def test_what_is_stored_is_what_was_found(finished_study) -> None:
    out, result = finished_study
    best = from_toml((out / "best.toml").read_text())
    assert [choice.label for choice in best.methods] == ["fedavg", "pulled"]
    assert best.methods[1].learning_rate == result[1].best.values["learning_rate"]
    assert best.methods[1].method.settings["mu"] == result[1].best.values["mu"]
    assert replace(best, methods=CONFIG.methods) == CONFIG
    stored = json.loads((out / "tuning.json").read_text())
    assert stored["trials_per_method"] == 7
    assert stored["format"] == 2 and stored["unit"] == "Wh"
    assert stored["methods"]["pulled"]["chosen"]["validation_rmse"] == result[1].best.score
    assert stored["methods"]["pulled"]["ranges"]["mu"] == {"low": 0.001, "high": 1.0, "log": True}
    assert len(stored["methods"]["fedavg"]["trials"]) == 7
    assert (
        "| pulled | 7 | learning_rate | 0.001 to 0.1, log | 0.05 |"
        in (out / "tuning.md").read_text()
    )


@pytest.mark.parametrize("stop_after", [1, 2, 5])
def test_a_stopped_study_continues_as_if_it_had_not_been(
    finished_study, tmp_path, stop_after
) -> None:
    out = tmp_path / "study"
    result = finished_study[1]
    with pytest.raises(KeyboardInterrupt):
        tune(CONFIG, out, trials=7, on_trial=Watcher(stop_after))
    assert tune(CONFIG, out, trials=7, on_trial=Watcher(), resume=True) == result


def test_a_trial_cut_short_is_drawn_anew(finished_study, tmp_path, monkeypatch) -> None:
    out = tmp_path / "study"
    scored = []

    def dies(*arguments) -> list[float]:
        if len(scored) == 3:
            raise KeyboardInterrupt
        scored.append(scores(*arguments))
        return scored[-1]

    monkeypatch.setattr(module, "scores", dies)
    with pytest.raises(KeyboardInterrupt):
        tune(CONFIG, out, trials=7, on_trial=Watcher())
    monkeypatch.undo()
    assert tune(CONFIG, out, trials=7, on_trial=Watcher(), resume=True) == finished_study[1]


def test_trials_of_a_stack_count_together(finished_study, tmp_path, monkeypatch) -> None:
    """A kill between two entries into the study loses none of those that were scored."""
    import optuna

    out = tmp_path / "study"
    told = []
    tell = optuna.Study.tell

    def dies(study, trial, value) -> None:
        if len(told) == 3:
            raise KeyboardInterrupt
        told.append(tell(study, trial, value))

    monkeypatch.setattr(optuna.Study, "tell", dies)
    with pytest.raises(KeyboardInterrupt):
        tune(CONFIG, out, trials=7, on_trial=Watcher())
    monkeypatch.undo()
    assert tune(CONFIG, out, trials=7, on_trial=Watcher(), resume=True) == finished_study[1]


def test_more_trials_may_follow_and_fewer_may_not(finished_study, tmp_path) -> None:
    config = replace(CONFIG, methods=CONFIG.methods[:1])
    out = tmp_path / "study"
    first = tune(config, out, trials=2, on_trial=Watcher())
    more = tune(config, out, trials=3, on_trial=Watcher(), resume=True)
    assert more[0].trials[:2] == first[0].trials
    with pytest.raises(RunError, match="already has 3 trials"):
        tune(config, out, trials=2, on_trial=Watcher(), resume=True)
    with pytest.raises(RunError, match="another seed or other ranges"):
        tune(config, out, trials=3, on_trial=Watcher(), resume=True, seed=1)
    with pytest.raises(RunError, match="already holds a run"):
        tune(config, out, trials=3, on_trial=Watcher())


def test_a_configured_value_outside_its_range_is_refused_before_any_work(tmp_path) -> None:
    fast = replace(CONFIG, methods=(replace(CONFIG.methods[0], learning_rate=0.5),))
    with pytest.raises(
        SettingError, match=r"fedavg.learning_rate = 0.5 is outside .* \(0.001 to 0.1, log"
    ):
        tune(fast, tmp_path / "study", trials=2, on_trial=Watcher())
    assert not (tmp_path / "study").exists()


def test_a_composition_is_tuned_over_the_ranges_of_its_parts() -> None:
    ranges = ranges_of(get("fo-ri-fedavg@adam"))
    assert set(ranges) == {"learning_rate", "lam", "tau_i", "alpha", "server_learning_rate", "tau"}
    assert ranges_of(get("scaffold")) == {"learning_rate": RATE}


def test_a_rule_without_a_range_for_a_number_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Shrinking(LocalRule):
        shrinkage: float = 0.1
        every: int = 5

    with pytest.raises(SettingError, match="Shrinking declares no range for shrinkage"):
        ranges_of(Method("own", (Shrinking(),)))
    Shrinking.ranges = {"shrinkage": Range(0.01, 1.0)}
    assert ranges_of(Method("own", (Shrinking(),))) == {
        "learning_rate": RATE,
        "shrinkage": Range(0.01, 1),
    }


def test_errors_are_shown_in_the_unit_of_the_target(finished_study) -> None:
    _, result = finished_study
    charge = TARGETS["soc"]
    rough = replace(
        result[0],
        trials=(Trial({"learning_rate": 0.05}, 0.0814), Trial({"learning_rate": 0.01}, inf)),
    )
    table = tuning_table([rough], charge)
    assert [column.heading for column in table.columns[-2:]] == [
        "RMSE configured (points)",
        "RMSE chosen (points)",
    ]
    assert table.text_rows()[0][-2:] == ["0.0814", "0.0814"]
    assert shown_score(rough.trials[0], charge, " points") == "0.0814 points"
    assert shown_score(rough.trials[1], charge, " points") == "diverged"
    stored = module._as_json([rough], 0, charge)
    assert stored["unit"] == "points"
    trials = stored["methods"]["fedavg"]["trials"]
    assert [trial["validation_rmse"] for trial in trials] == [0.0814, None]
