"""Judging: who is better, what is advised and what is said, from records made by hand."""

from typing import Any

import pytest
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.runs.config import DEFAULT_METHODS
from tournament.entries import ENTRIES
from tournament.judge import (
    Column,
    Records,
    advice,
    beats_all_published,
    deserve_to_be_default,
    pooled,
    unplayed,
    winners,
)
from tournament.page import (
    COLUMNS,
    PAGE,
    answer,
    default,
    guide,
    matrix,
    rates,
    stragglers,
    write_page,
)
from tournament.records import RECORDS, Record, read_records, write_records

PLAN = {"trials": 2, "rounds": 4, "steps": 1, "every": 2, "seeds": [1, 2, 3], "tuning_seeds": [9]}


def a_record(arena: str, entry: str, last: list[float], **more: Any) -> Record:
    """Half-way errors are ten above the last ones, fine-tuned ones five below."""

    def seeds(shift: float) -> dict[str, float | None]:
        return {str(seed): value + shift for seed, value in enumerate(last, start=1)}

    content = {
        "arena": arena,
        "entry": entry,
        "plan": PLAN,
        "device": "cpu",
        "seconds": 1.0,
        "costs": {"bytes": 1.0, "compute": 1.0},
        "matched": {"rounds": 4, "bytes": 4, "compute": 4},
        "diverged": [],
        "curves": {n: [seeds(10.0), seeds(0.0)] for n in ("global", "newcomers", "own")},
        "tuned": {
            "2": {"test": seeds(5.0), "newcomers": seeds(5.0)},
            "4": {"test": seeds(-5.0), "newcomers": seeds(-5.0)},
        },
        "stragglers": {"diverged": [], "own": [seeds(1.0)], "global": [seeds(1.0)]},
        "settings": {"rate": 0.05},
    }
    return Record(arena, entry, content | more)


def records(*found: Record) -> Records:
    return {(one.arena, one.entry): one for one in found}


DEARER = {
    "costs": {"bytes": 2.0, "compute": 1.1},
    "matched": {"rounds": 4, "bytes": 2, "compute": 4},
}
FOUND = records(
    a_record("ved hills", "fedavg", [20.0, 22.0, 21.0]),
    a_record("ved hills", "scaffold", [18.0, 20.1, 18.9], **DEARER),
    a_record("ved hills", "fedprox", [20.5, 21.5, 21.0]),
    a_record("ved hills", "scaffold+sharpness", [16.9, 19.0, 18.1], **DEARER),
)


def test_differences_are_paired_by_seed() -> None:
    found = Column("ved hills", "global").standings(FOUND)
    scaffold = found["scaffold"].beside.difference
    # 18-20, 20.1-22, 18.9-21: mean -2.0, spread 0.1; 0.1/√3 · 4.302653 (two degrees of freedom)
    assert (scaffold.mean, scaffold.high - scaffold.mean) == (approx(-2.0), approx(0.24841, 1e-4))
    assert found["scaffold"].better
    assert not found["fedprox"].better and not found["fedprox"].worse


def test_at_equal_bytes_a_dear_method_is_judged_half_way() -> None:
    found = Column("ved hills", "global", "bytes").standings(FOUND)
    assert found["scaffold"].mean == approx(29.0)
    assert found["scaffold"].worse
    assert found["fedavg"].mean == approx(21.0)
    assert Column("ved hills", "personal", "bytes").standings(FOUND)["scaffold"].mean == 24.0


def test_the_cheapest_of_those_that_tie_is_advised() -> None:
    dear = advice([Column("ved hills", "global")], FOUND)
    assert dear is not None
    # It alone is best: scaffold's own differences from it, 1.1, 1.1 and 0.8, leave zero out.
    assert (dear.entry, dear.tied, dear.baseline, dear.arenas) == ("scaffold+sharpness", 1, 0, 1)
    cheap = advice([Column("ved hills", "global", "bytes")], FOUND)
    assert cheap is not None
    assert cheap.entry == "fedavg"  # fedprox ties with it, and comes later
    assert advice([Column("ved level", "global")], FOUND) is None


def test_an_entry_that_was_not_played_everywhere_is_not_advised() -> None:
    # On "ved hills" scaffold+sharpness is best; on "severe hills" it was not played, and fedprox,
    # which was, is no worse than FedAvg there.
    severe = [a_record("severe hills", name, [10.0, 10.1, 9.9]) for name in ("fedavg", "fedprox")]
    columns = [Column("ved hills", "global"), Column("severe hills", "global")]
    found = advice(columns, {**FOUND, **records(*severe)})
    assert found is not None
    assert (found.entry, found.tied, found.arenas) == ("fedavg", 1, 2)
    assert found.incomplete == ("scaffold", "scaffold+sharpness")
    said = guide({**FOUND, **records(*severe)})
    assert "no result on some of the arenas: `scaffold` and `scaffold+sharpness`." in said


def test_fine_tuned_errors_are_of_the_last_round_that_was_both_tuned_and_paid_for() -> None:
    matched = {"rounds": 4, "bytes": 3, "compute": 1}
    own = a_record("ved hills", "scaffold", [18.0, 20.0, 19.0], matched=matched)
    assert own.errors("personal", "bytes") == {1: 23.0, 2: 25.0, 3: 24.0}  # of round 2
    assert own.errors("personal", "compute") == {}  # the first tuned one is dearer


def test_a_new_method_must_beat_the_best_published_one() -> None:
    columns = [Column("ved hills", "global"), Column("severe hills", "global")]
    assert beats_all_published("scaffold+sharpness", columns, FOUND) == ["ved hills"]


def test_the_answer_names_who_wins_where() -> None:
    said = answer(FOUND)
    # Fine-tuned errors are shifted alike, so the differences are the same.
    assert said.startswith("**Yes: scaffold and scaffold+sharpness, on all 1 fleets with hills.**")
    assert "- ved: FedAvg 16.00 Wh; better: scaffold+sharpness (−3.00 ± 0.25), scaffold" in said
    alone = records(FOUND["ved hills", "fedavg"], FOUND["ved hills", "fedprox"])
    assert answer(alone).startswith("**No, on none of the 1 fleets with hills.**")


def test_tables_have_a_row_for_whoever_has_a_result() -> None:
    table = matrix("global", "rounds", FOUND)
    assert "| scaffold | – | **−2.00 ± 0.25** |" in table
    assert "| fedprox | – | +0.00 ± 1.24 |" in table
    assert "| moon |" not in table
    assert "| fedprox |" not in matrix("global", "bytes", FOUND)
    assert "| fedavg | – | **+1.00 ± 0.00** |" in stragglers(FOUND)
    assert "| share one model and learn hills | `scaffold+sharpness` |" in guide(FOUND)


def test_over_several_fleets_relative_differences_are_averaged_seed_by_seed() -> None:
    columns = [Column("ved hills", "global"), Column("severe hills", "global")]
    severe = [
        a_record("severe hills", "fedavg", [10.0, 10.0, 10.0]),
        a_record("severe hills", "scaffold", [10.0, 9.5, 10.5]),
    ]
    found = pooled(columns, {**FOUND, **records(*severe)})
    assert list(found) == ["scaffold"]  # the others were not played on both
    # (-10 + 0)/2, (-8.6364 - 5)/2 and (-10 + 5)/2 percent
    assert found["scaffold"][0].difference.mean == approx((-5 - 6.81818 - 2.5) / 3, abs=1e-5)
    assert pooled([Column("ved level", "global")], FOUND) == {}


def test_rates_beyond_their_range_are_counted() -> None:
    def tried(*rates: float) -> list[dict[str, Any]]:
        return [{"settings": {"rate": rate}, "score": 1.0} for rate in rates]

    # Two trials are within the range. One match stays inside, one goes beyond, one to the last.
    inside = a_record("ved hills", "fedavg", [1.0], trials=tried(0.05, 0.06))
    beyond = {"trials": tried(0.05, 0.06, 0.07, 0.08), "settings": {"rate": 0.07}}
    beyond |= {"given_up": {"settings": {"rate": 0.08}, "diverged": [1]}}
    last = {"trials": tried(0.05, 0.06, 0.07), "settings": {"rate": 0.07}}
    found = rates(
        records(
            inside,
            a_record("ved level", "fedavg", [1.0], **beyond),
            a_record("severe level", "fedavg", [1.0], **last),
        )
    )
    assert "| `fedavg` | 0.05 to 0.07 | 2 | 1 | 1 of 3 |" in found
    assert "| `scaffold` |" not in found


def test_every_match_without_a_result_has_a_reason() -> None:
    lost = a_record("ved hills", "moon", [1.0], diverged=[1])
    gone = Record(
        "ved hills",
        "fedel",
        {"arena": "ved hills", "entry": "fedel", "plan": PLAN, "seconds": 1.0},
    )
    reasons = unplayed({**FOUND, ("ved hills", "moon"): lost, ("ved hills", "fedel"): gone})
    assert reasons["ved hills: moon"] == "diverged with seeds 1"
    assert reasons["ved hills: fedel"] == "all of its trials diverged"
    assert reasons["ved level: fedavg"] == "not begun; no match of this arena has been played"
    # Four matches of one second each, moon's of one more.
    slow = a_record("ved hills", "moon", [1.0], seconds=896.0)
    others = unplayed({**FOUND, ("ved hills", "moon"): slow})["ved hills: ditto"]
    assert others == "not begun; the 5 others there took 3.0 minutes of a process each"
    assert reasons["electrified-50 hills"].startswith("the traces have no positions")
    assert len(reasons) == 2 + 10 * len(ENTRIES) - 4


def test_records_survive_their_file(tmp_path) -> None:
    write_records(tmp_path / "all.jsonl", [own.content for own in FOUND.values()])
    back = read_records(tmp_path / "all.jsonl")
    assert {name: own.content for name, own in back.items()} == {
        name: own.content for name, own in FOUND.items()
    }


def test_records_of_two_plans_are_not_put_together(tmp_path) -> None:
    other = a_record("ved hills", "moon", [1.0], plan=PLAN | {"trials": 5})
    with pytest.raises(SettingError, match=r"'ved hills moon' .* \(trials is 5, not 2\)"):
        write_records(tmp_path / "all.jsonl", [FOUND["ved hills", "fedavg"].content, other.content])


def test_the_default_run_has_whoever_the_page_says_belongs_there() -> None:
    deserving = deserve_to_be_default(COLUMNS, read_records(RECORDS))
    assert {"fedavg", "fo-ri-fedavg", *deserving} == set(DEFAULT_METHODS)


def test_who_wins_on_half_of_the_fleets_deserves_to_be_the_default() -> None:
    # scaffold and scaffold+sharpness win on one of four fleets with hills, and on one of one.
    names = ("ved hills", "moderate hills", "severe hills", "embedded hills")
    four, one = [Column(name, "global") for name in names], [Column("ved hills", "global")]
    assert winners(four, FOUND) == {"scaffold": 1, "scaffold+sharpness": 1}
    assert deserve_to_be_default({"hills": four}, FOUND) == ()
    assert deserve_to_be_default({"one": one}, FOUND) == ("scaffold", "scaffold+sharpness")
    said = default({**FOUND, **records(a_record("ved level", "fedavg", [40.0, 44.0, 42.0]))})
    assert "Nobody is; the most is 1 of 4 (`scaffold`: one model, hills)." in said
    assert "hills take 50 to 50 % off" in said


def test_the_page_is_what_the_records_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(read_records(RECORDS))
