"""Evaluation of records made by hand: differences by dataset, recommendation, page and table."""

import csv
from typing import Any

import pytest
from pytest import approx

from comparison.candidates import CANDIDATES, TWINS
from comparison.evaluate import Column, Question, Records, differences, recommend
from comparison.page import HEADINGS, PAGE, as_csv, recommendation, table, written
from comparison.records import RECORDS, Record, edge, read_records, write_records
from comparison.report import report
from fedwatt.errors import SettingError

PLAN = {"trials": 2, "rounds": 4, "steps": 1, "every": 2, "seeds": [1, 2, 3], "tuning_seeds": [9]}
ELEVATION = ("ved elevation", "moderate elevation", "severe elevation", "synthetic elevation")
BASE = ("ved base", "moderate base", "severe base", "synthetic base")
ELECTRIFIED = ("electrified-50 base", "electrified-175 base")


def a_record(dataset: str, method: str, last: list[float], **more: Any) -> Record:
    """A record whose half-way errors are ten above the last ones, fine-tuned ones five below."""

    def seeds(shift: float) -> dict[str, float | None]:
        return {str(seed): value + shift for seed, value in enumerate(last, start=1)}

    content = {
        "dataset": dataset,
        "method": method,
        "plan": PLAN,
        "device": "cpu",
        "seconds": 1.0,
        "costs": {"bytes": 1.0, "compute": 1.0},
        "matched": {"rounds": 4, "bytes": 4, "compute": 4},
        "diverged": [],
        "curves": {name: [seeds(10.0), seeds(0.0)] for name in ("global", "unseen", "own")},
        "tuned": {
            "2": {"test": seeds(5.0), "unseen": seeds(5.0)},
            "4": {"test": seeds(-5.0), "unseen": seeds(-5.0)},
        },
        "stragglers": {"diverged": [], "own": [seeds(1.0)], "global": [seeds(1.0)]},
        "settings": {"learning_rate": 0.05},
    }
    return Record(dataset, method, content | more)


def records(*made: Record) -> Records:
    return {(prediction.dataset, prediction.method): prediction for prediction in made}


def everywhere(method: str, percent: dict[str, list[float]]) -> list[Record]:
    """A method and FedAvg on all datasets; fine-tuned FedAvg has 100 Wh, the method `percent` more.

    `percent` has a dataset's differences by seed; others are 0.
    """
    made = []
    for name in (*ELEVATION, *BASE, *ELECTRIFIED):
        made.append(a_record(name, "fedavg", [105.0, 105.0, 105.0]))
        shift = percent.get(name, [0.0, 0.0, 0.0])
        made.append(a_record(name, method, [105.0 + change for change in shift]))
    return made


DEARER = {"matched": {"rounds": 4, "bytes": 2, "compute": 4}}
RECORDED = records(
    a_record("ved elevation", "fedavg", [20.0, 22.0, 21.0]),
    a_record("ved elevation", "scaffold", [18.0, 20.1, 18.9], **DEARER),
    a_record("ved elevation", "fedprox", [20.5, 21.5, 21.0]),
)


def test_differences_are_paired_by_seed() -> None:
    standings = Column("ved elevation", "global").standings(RECORDED)
    scaffold = standings["scaffold"].difference
    # 18-20, 20.1-22, 18.9-21: mean -2.0, spread 0.1; 0.1/√3 · 4.302653 (two degrees of freedom)
    assert (scaffold.mean, scaffold.high - scaffold.mean) == (approx(-2.0), approx(0.24841, 1e-4))
    assert standings["scaffold"].p < 0.05 < standings["fedprox"].p


def test_at_equal_bytes_a_dear_method_is_evaluated_half_way() -> None:
    standings = Column("ved elevation", "global", "bytes").standings(RECORDED)
    assert standings["scaffold"].mean == approx(29.0)
    assert standings["fedavg"].mean == approx(21.0)


def test_partitions_of_one_fleet_count_as_one_dataset() -> None:
    # -3, 0 and 0 % on three partitions of VED are -1 % of one dataset; with -5 % on the other
    # dataset the mean is -3, and not (-3 + 0 + 0 - 5 - 5) / 5 = -2.6 as over five partitions.
    percent = {name: [-5.0, -5.1, -4.9] for name in ELECTRIFIED}
    percent["ved base"] = [-3.0, -3.3, -2.7]
    made = records(*everywhere("scaffold", percent))
    compared = differences(Question("personalised", elevation=False), made)["scaffold"]
    assert list(compared.by_dataset) == ["ved", "electrified", "synthetic"]
    assert compared.by_dataset["ved"].mean == approx(-1.0)
    assert compared.by_dataset["electrified"].mean == approx(-5.0)
    assert compared.mean.difference.mean == approx(-3.0)
    assert recommend(made) == "scaffold"


def test_the_synthetic_fleet_never_decides() -> None:
    percent = {"synthetic elevation": [-9.0, -9.1, -8.9], "synthetic base": [-9.0, -9.1, -8.9]}
    made = records(*everywhere("fedcm", percent))
    compared = differences(Question("personalised", elevation=True), made)["fedcm"]
    assert compared.by_dataset["synthetic"].mean == approx(-9.0)
    assert compared.mean.difference.mean == 0
    assert recommend(made) == "fedavg"


def test_a_method_that_is_worse_on_an_independent_dataset_is_not_recommended() -> None:
    percent = {name: [-9.0, -9.1, -8.9] for name in ELECTRIFIED}
    percent |= {name: [1.0, 1.1, 0.9] for name in BASE}
    made = records(*everywhere("fedcm", percent))
    assert differences(Question("personalised", elevation=False), made)["fedcm"].better
    assert recommend(made) == "fedavg"
    assert recommendation(made).startswith("Recommended method: `fedavg` (no other")


def test_significance_counts_all_methods() -> None:
    # -1.3, -0.7 and -1.0 %: p = 0.0287, which alone would count; of two methods it is 0.0574.
    percent = {name: [-1.3, -0.7, -1.0] for name in ELEVATION}
    alone = everywhere("scaffold", percent)
    assert recommend(records(*alone)) == "scaffold"
    noisy = everywhere("ditto", {name: [5.0, -1.0, -5.0] for name in ELEVATION})
    assert recommend(records(*alone, *noisy)) == "fedavg"


def test_a_method_without_a_result_on_some_dataset_is_not_recommended() -> None:
    percent = {name: [-9.0, -9.1, -8.9] for name in (*ELEVATION, *BASE, *ELECTRIFIED)}
    made = records(*everywhere("scaffold", percent))
    assert recommend(made) == "scaffold"
    fewer = {
        name: prediction for name, prediction in made.items() if name != ("severe base", "scaffold")
    }
    assert recommend(fewer) == "fedavg"


def test_the_table_has_each_dataset_beside_the_mean() -> None:
    percent = {name: [-5.0, -5.1, -4.9] for name in ELECTRIFIED}
    percent["synthetic elevation"] = [-9.0, -9.1, -8.9]
    head, _, *lines = table(records(*everywhere("scaffold", percent))).splitlines()
    assert head.split(" | ")[1:5] == [
        "ved, with elevation", "p", "ved, without", "electrified, without",
    ]  # fmt: skip
    (row,) = [line for line in lines if "`scaffold`" in line]
    # Half of -5.0, -5.1 and -4.9 is -2.5 with a spread of 0.05: ± 0.05/√3 · 4.3 = 0.12.
    assert "| +0.0 | \N{MINUS SIGN}5.0 | \N{MINUS SIGN}2.5 ± 0.1; " in row
    assert row.endswith("| \N{MINUS SIGN}9.0 | +0.0 |")


def test_records_of_methods_that_were_removed_stay_out() -> None:
    removed = a_record("ved elevation", "no-longer-there", [1.0, 1.0, 1.0])
    text = as_csv({**RECORDED, **records(removed)})
    assert "no-longer-there" not in text and "scaffold" in text


def test_the_csv_and_the_report_have_every_result() -> None:
    lines = list(csv.DictReader(as_csv(RECORDED).splitlines()))
    assert tuple(lines[0]) == HEADINGS
    (row,) = [
        line for line in lines
        if (line["method"], line["view"], line["at_equal"]) == ("scaffold", "global", "rounds")
    ]  # fmt: skip
    assert (row["rmse_wh"], row["difference_wh"], row["learning_rate"]) == (
        "19.000", "-2.000", "0.05",
    )  # fmt: skip
    assert report(RECORDED).count("<tr>") == len(lines) + 1


def test_fine_tuned_errors_are_of_the_last_round_that_was_both_tuned_and_paid_for() -> None:
    matched = {"rounds": 4, "bytes": 3, "compute": 1}
    scaffold_record = a_record("ved elevation", "scaffold", [18.0, 20.0, 19.0], matched=matched)
    assert scaffold_record.errors("personalised", "bytes") == {
        1: 23.0,
        2: 25.0,
        3: 24.0,
    }  # of round 2
    assert scaffold_record.errors("personalised", "compute") == {}  # the first tuned one is dearer


def test_records_survive_their_file(tmp_path) -> None:
    write_records(tmp_path / "all.jsonl", [recorded.content for recorded in RECORDED.values()])
    back = read_records(tmp_path / "all.jsonl")
    assert {name: read_back.content for name, read_back in back.items()} == {
        name: local.content for name, local in RECORDED.items()
    }


def test_records_of_two_plans_are_not_put_together(tmp_path) -> None:
    other = a_record("ved elevation", "moon", [1.0], plan=PLAN | {"trials": 5})
    first = RECORDED["ved elevation", "fedavg"]
    with pytest.raises(SettingError, match=r"'ved elevation moon' .* \(trials is 5, not 2\)"):
        write_records(tmp_path / "all.jsonl", [first.content, other.content])


def test_fedavg_is_recorded_below_the_rate_at_which_it_diverges_under_other_names() -> None:
    committed = read_records(RECORDS)
    assert edge("severe elevation", committed) == 0.1439
    settings = [committed["severe elevation", twin].content["settings"] for twin in TWINS]
    assert [chosen["learning_rate"] for chosen in settings] == [0.08859, 0.08859, 0.08859]
    # They train the same models: the errors differ by less than a hundredth of a Wh.
    ends = [committed["severe elevation", twin].errors("global") for twin in TWINS]
    assert all(ends[0][seed] == approx(end[seed], abs=0.01) for end in ends[1:] for seed in end)


def test_pages_and_table_are_what_the_records_give() -> None:
    for file, text in written(read_records(RECORDS)).items():
        assert file.read_text(encoding="utf-8") == text, file


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 900


def test_every_committed_record_is_of_a_known_method() -> None:
    assert {method for _, method in read_records(RECORDS)} <= set(CANDIDATES)
