import pytest

from fedwatt.report.answer import answer
from fedwatt.report.load import load_run, together
from tests.report import conftest
from tests.report.conftest import make_run


def said(folder) -> tuple[str, str]:
    found = answer(load_run(folder))
    return found.headline, " ".join(found.sentences)


def test_clear_gain(tmp_path):
    headline, text = said(make_run(tmp_path / "run"))
    assert headline == "FO-RI-FedAvg has 3.3 % lower error than FedAvg on this fleet"
    assert "3 paired seeds" in text and "more than the noise" in text
    assert "adjusted" not in text
    assert "lower error on 16 of 20 vehicles" in text


def test_clear_loss(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 60.0)
    headline, text = said(make_run(tmp_path / "run"))
    assert "higher error than FedAvg" in headline
    assert "above FedAvg" in text and "on 0 of 20 vehicles" in text


def test_noise_is_called_noise(tmp_path, monkeypatch):
    monkeypatch.setitem(conftest.FINAL_WH, "fo-ri-fedavg", 53.2)
    headline, text = said(make_run(tmp_path / "run"))
    assert headline.startswith("No clear difference between FO-RI-FedAvg and FedAvg")
    assert "includes zero, so this is within the noise" in text


def test_one_seed_cannot_tell(tmp_path):
    headline, text = said(make_run(tmp_path / "run", seeds=(1,)))
    assert headline.startswith("No clear difference")
    assert "One seed cannot tell" in text


def test_many_methods_are_adjusted_for(tmp_path):
    _, text = said(make_run(tmp_path / "run", methods=("fedavg", "fedprox", "fo-ri-fedavg")))
    assert "adjusted for 2 comparisons" in text


def test_divergence_is_told(run_folder):
    _, text = said(run_folder)
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
    assert said(make_run(tmp_path / "run", diverges=diverges))[0] == headline


def test_single_method(tmp_path):
    headline, text = said(make_run(tmp_path / "run", methods=("fedavg",)))
    assert headline == "FedAvg ends at 53.2 Wh RMSE per window"
    assert "nothing to compare" in text


def test_different_data_are_not_ranked(tmp_path):
    first = make_run(tmp_path / "day", methods=("fedavg",))
    second = make_run(tmp_path / "night", methods=("fedprox",), data_hash="ffff")
    assert "different data" in answer(together([first, second])).headline
