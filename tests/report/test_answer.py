import re

import pytest

from fedwatt.report.answer import answer
from fedwatt.report.load import load_run, load_runs
from fedwatt.report.table import cell_text
from fedwatt.report.tables import differences_table
from tests.report import conftest
from tests.report.conftest import make_run


def answer_of(folder) -> tuple[str, str]:
    verdict = answer(load_run(folder))
    return verdict.headline, " ".join((*verdict.sentences, *verdict.details))


def test_clear_gain(tmp_path):
    headline, text = answer_of(make_run(tmp_path / "run"))
    assert headline == "FO-RI-FedAvg has 2.4 % lower error than FedAvg"
    assert "3 paired seeds: a significant difference" in text
    assert "adjusted" not in text
    assert "lower error on 16 of 20 vehicles" in text


def test_unequal_steps_at_one_rate_are_in_the_headline(tmp_path):
    folder = make_run(tmp_path / "run")
    text = conftest.CONFIG.replace("learning_rate = 0.1\n", "")
    (folder / "config.toml").write_text(text, encoding="utf-8")
    headline, _ = answer_of(folder)
    # The fixture's FO-RI drifts 0.6 times as far as FedAvg in round 1.
    assert "but at one learning rate for both its steps are 0.6 times as long" in headline


def test_equal_steps_at_one_rate_are_a_fair_comparison(tmp_path):
    folder = make_run(tmp_path / "run", methods=("fedavg", "fedprox"))
    text = conftest.CONFIG.replace("fo-ri-fedavg", "fedprox").replace(
        "learning_rate = 0.1\nalpha = 0.8", ""
    )
    (folder / "config.toml").write_text(text, encoding="utf-8")
    assert "at one learning rate" not in answer_of(folder)[0]


def test_clear_loss(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 60.0)
    headline, text = answer_of(make_run(tmp_path / "run"))
    assert "higher error than FedAvg" in headline
    assert "above FedAvg" in text and "on 0 of 20 vehicles" in text


def test_noise_is_called_noise(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 53.2)
    headline, text = answer_of(make_run(tmp_path / "run"))
    assert headline == "FedAvg and FO-RI-FedAvg tie"
    assert "paired seeds: no significant difference" in text


def test_one_seed_cannot_tell(tmp_path):
    headline, text = answer_of(make_run(tmp_path / "run", seeds=(1,)))
    assert headline == "FedAvg and FO-RI-FedAvg tie"
    assert "one seed cannot tell" in text


def test_seeds_that_are_copies_cannot_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(conftest, "test_rmse_wh", lambda method, *_: conftest.FINAL_WH[method])
    folder = make_run(tmp_path / "run")
    headline, text = answer_of(folder)
    assert headline == "FedAvg and FO-RI-FedAvg tie"
    assert "all 3 paired seeds gave the same training" in text
    assert "significant" not in text and "95 %" not in text
    ((_, change, _, noise, *_),) = differences_table(load_run(folder)).rows
    # Vehicles have 0.98 times the final error in the mean, and 0.989 times with FO-RI-FedAvg.
    assert (cell_text(change, 2), noise) == ("−1.01 ± 0.00", "the seeds gave the same training")
    _, text = answer_of(make_run(tmp_path / "alone", methods=("fedavg",)))
    assert "All 3 seeds gave the same training." in text


def test_both_ends_of_an_interval_have_their_sign(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 60.0)
    _, text = answer_of(make_run(tmp_path / "worse"))
    assert re.search(
        r"interval \+\d\.\d\d to \+\d\.\d\d Wh over 3 paired seeds: a significant", text
    )
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 53.2)
    _, text = answer_of(make_run(tmp_path / "alike"))
    assert re.search(
        r"interval −\d\.\d\d to \+\d\.\d\d Wh over 3 paired seeds: no significant", text
    )


def test_huge_errors_are_short(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 1e38)
    headline, text = answer_of(make_run(tmp_path / "run"))
    assert "e+38" in text and not re.search(r"\d{7}", headline + text)


def test_many_methods_are_adjusted_for(tmp_path):
    _, text = answer_of(make_run(tmp_path / "run", methods=("fedavg", "fedprox", "fo-ri-fedavg")))
    assert "adjusted for 2 comparisons" in text


def test_divergence_is_told(run_folder):
    _, text = answer_of(run_folder)
    assert "FO-RI-FedAvg diverged: seed 2 at round 17." in text


@pytest.mark.parametrize(
    ("lost", "headline"),
    [
        (("fedavg",), "FedAvg diverged in every seed; FO-RI-FedAvg did not"),
        (("fo-ri-fedavg",), "Only FedAvg finished a seed that can be compared"),
        (("fedavg", "fo-ri-fedavg"), "Every method diverged"),
    ],
)
def test_whole_methods_that_diverge(tmp_path, lost, headline):
    diverges = {(method, seed): 3 for method in lost for seed in (1, 2, 3)}
    assert answer_of(make_run(tmp_path / "run", diverges=diverges))[0] == headline


def test_single_method(tmp_path):
    headline, text = answer_of(make_run(tmp_path / "run", methods=("fedavg",)))
    assert headline == "FedAvg has an error of 52.1 Wh per window"
    assert "no other method in this run" in text


def test_different_data_are_not_ranked(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(tmp_path / "night", methods=("fedprox",), data_hash="ffff")
    assert "different data" in answer(load_runs([first, second])).headline


def test_different_numbers_of_rounds_are_told(tmp_path):
    long = make_run(tmp_path / "long", methods=("fedavg",))
    short = make_run(tmp_path / "short", methods=("fedprox",), last_round=12)
    verdict = answer(load_runs([long, short]))
    # FedProx has 52 + 48 / e² ≈ 58.5 Wh after 12 rounds, FedAvg about 53.3 Wh after 30.
    assert verdict.headline.endswith(
        "% higher error than FedAvg after 30"
    ) and verdict.headline.startswith("FedProx after 12 rounds has ")
    text = " ".join((*verdict.sentences, *verdict.details))
    assert "different numbers of rounds: FedAvg 30, FedProx 12." in text
    assert "above FedAvg" in text and "below FedAvg" not in text


def test_equal_rounds_are_not_mentioned(tmp_path):
    headline, text = answer_of(make_run(tmp_path / "run"))
    assert "rounds" not in headline + text


def test_fewer_seeds_do_not_take_the_headline(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-fedavg", 40.0)
    first = make_run(tmp_path / "three")
    second = make_run(tmp_path / "one", methods=("fo-fedavg",), seeds=(1,))
    verdict = answer(load_runs([first, second]))
    assert verdict.comparison.method == "fo-ri-fedavg"
    assert "with fewer than 3 paired seeds: FO-FedAvg (1)." in " ".join(verdict.details)


def test_numbers_of_seeds_are_told_where_they_differ(tmp_path):
    first = make_run(tmp_path / "three", methods=("fedavg",))
    second = make_run(tmp_path / "one", methods=("fedprox",), seeds=(1,))
    text = answer(load_runs([first, second])).sentences[0]
    assert "Wh (one seed), FedAvg" in text and "Wh (3 seeds):" in text


def test_no_seed_in_common(tmp_path):
    first = make_run(tmp_path / "a", methods=("fedavg",), seeds=(1, 2))
    second = make_run(tmp_path / "b", methods=("fedprox",), seeds=(3,))
    headline = answer(load_runs([first, second])).headline
    assert headline == "No other method finished a seed that FedAvg finished"


def test_the_headline_tells_what_personalisation_gains(tmp_path):
    folder = make_run(tmp_path / "run", seeds=(1,))
    conftest.add_personal(folder, factor=0.5)
    headline, text = answer_of(folder)
    # Vehicles have 0.60 to 1.36 times the final error, 0.98 in the mean; every fifth has 5 % more
    # with FO-RI-FedAvg, which has the lower validation error and so the headline.
    factors = [(0.6 + 0.04 * k) * (1.05 if k % 5 == 0 else 1) for k in range(20)]
    shared = sum(factors) / 20 * conftest.test_rmse_wh("fo-ri-fedavg", 1, 30)
    ends = f"{shared:.1f} to {shared / 2:.1f} Wh"
    assert headline.startswith(f"Personalisation lowers the error from {ends}; ")
    assert f"error of {shared:.1f} Wh, fine-tuned in each vehicle {shared / 2:.1f} Wh" in text
