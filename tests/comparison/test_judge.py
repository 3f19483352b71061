"""Judging: who is better, what is advised and what is said, from records made by hand."""

from typing import Any

import pytest
from pytest import approx

from comparison.entries import ENTRIES, TWINS
from comparison.judge import (
    Column,
    Records,
    advice,
    beats_all_published,
    deserve_to_be_default,
    pooled,
    unplayed,
    winners,
)
from comparison.page import (
    COLUMNS,
    PAGE,
    answer,
    default,
    guide,
    matrix,
    ours,
    stragglers,
    write_page,
)
from comparison.records import RECORDS, Record, edge, read_records, write_records
from comparison.tuned import rates, untuned
from fedwatt.errors import SettingError
from fedwatt.runs.config import DEFAULT_METHODS

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


def test_the_lowest_of_those_that_beat_fedavg_is_advised() -> None:
    dear = advice([Column("ved hills", "global")], FOUND)
    assert dear is not None
    # 16.9/20, 19/22 and 18.1/21: -15.5, -13.6364 and -13.8095 percent.
    assert (dear.entry, dear.won, dear.arenas) == ("scaffold+sharpness", 1, 1)
    assert dear.beside.difference.mean == approx(-14.31530, abs=1e-4)
    cheap = advice([Column("ved hills", "global", "bytes")], FOUND)
    assert cheap is not None
    assert (cheap.entry, cheap.lowest) == ("fedavg", "fedavg")  # fedprox is 0.0758 % above it
    assert advice([Column("ved level", "global")], FOUND) is None


def test_an_entry_is_not_advised_if_it_would_not_be_significant_among_all() -> None:
    # Differences of -1.3, -0.7 and -1.0 percent: p = 0.0287, which alone would count; of two
    # entries it is 0.0574. Ditto is lower still, but by noise.
    base = a_record("ved hills", "fedavg", [100.0, 100.0, 100.0])
    steady = a_record("ved hills", "scaffold", [98.7, 99.3, 99.0])
    noisy = a_record("ved hills", "ditto", [90.0, 104.0, 100.0])
    columns = [Column("ved hills", "global")]
    alone = advice(columns, records(base, steady))
    assert alone is not None
    assert alone.entry == "scaffold" and alone.p == approx(0.02871, abs=1e-4)
    both = records(base, steady, noisy)
    found = advice(columns, both)
    assert found is not None
    assert (found.entry, found.lowest) == ("fedavg", "ditto")
    said = "no method is significantly better over 1 arenas; lowest: `ditto` (\N{MINUS SIGN}2.00 ±"
    assert f"| share one model and learn hills | `fedavg` | {said}" in guide(both)
    # A significant one goes before a lower one that is not.
    steadier = a_record("ved hills", "scaffold", [98.9, 99.1, 99.0])
    clear = advice(columns, records(base, steadier, noisy))
    assert clear is not None and clear.entry == "scaffold"


def test_an_entry_that_was_not_played_everywhere_is_not_advised() -> None:
    # On "ved hills" scaffold+sharpness is best; on "severe hills" it was not played, and fedprox,
    # which was, is no worse than FedAvg there.
    severe = [a_record("severe hills", name, [10.0, 10.1, 9.9]) for name in ("fedavg", "fedprox")]
    columns = [Column("ved hills", "global"), Column("severe hills", "global")]
    found = advice(columns, {**FOUND, **records(*severe)})
    assert found is not None
    assert (found.entry, found.won, found.arenas) == ("fedavg", 0, 2)
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


def test_the_answer_tells_who_would_win_with_the_rate_that_it_gave_up() -> None:
    # Fine-tuned FedAvg has 15, 17 and 16.
    old = {"edge": 0.1, "errors": {"personal": {"1": 13.0, "2": 15.1, "3": 13.9}}}
    moved = a_record("ved hills", "fedcm", [20.5, 21.5, 21.0], given_up=old)
    alike = a_record("ved hills", "fednova", [20.0, 22.0, 21.0], given_up=old)
    own = records(FOUND["ved hills", "fedavg"], moved, alike)
    said = "no method is significantly better; better with the rate that it gave up (below): fedcm"
    assert f"{said} (\N{MINUS SIGN}2.00 ± 0.25)\n" in answer(own)
    one = {"one": [Column("ved hills", "personal")]}
    assert deserve_to_be_default(one, own) == ()
    assert deserve_to_be_default(one, own, given_up=True) == ("fedcm",)


def test_tables_have_a_row_for_whoever_has_a_result() -> None:
    table = matrix("global", "rounds", FOUND)
    assert "| scaffold | – | **−2.00 ± 0.25** |" in table
    assert "| fedprox | – | +0.00 ± 1.24 |" in table
    assert "| moon |" not in table
    assert "| fedprox |" not in matrix("global", "bytes", FOUND)
    # One and the same difference in all seeds has no interval, and nothing is claimed.
    assert "| fedavg | – | +1.00 |" in stragglers(FOUND)
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


def test_matches_whose_tuning_has_not_come_to_an_end_are_named() -> None:
    plan = PLAN | {"further": 1}

    def at(arena: str, entry: str, *rates: float, **more: Any) -> Record:
        tried = [{"settings": {"rate": rate}, "score": -n} for n, rate in enumerate(rates)]
        return a_record(arena, entry, [1.0], plan=plan, trials=tried, **more)

    # The last of three trials, of which two are in the range, is best; a higher rate is due if it
    # has the highest. Whoever diverges within the range, as scaffold here, has nowhere to go back.
    assert untuned({}) == "All matches were tuned to the end."
    last = at("ved hills", "fedcm", 0.01, 0.02, 0.04, settings={"rate": 0.04})
    lost = {"settings": {"rate": 0.04}, "diverged": [2]}
    back = {"settings": {"rate": 0.02}, "given_up": {"edge": 0.04}}
    found = records(
        last,
        at("ved hills", "scaffold", 0.01, 0.04, 0.02, **lost),
        at("severe hills", "fednova", 0.01, 0.02, 0.04, **lost),
        at("severe hills", "fedcm", 0.01, 0.02, 0.04, **back),
        at("severe hills", "moon", 0.01, 0.02, 0.04, settings={"rate": 0.04}),
    )
    assert untuned(found).splitlines() == [
        "- On severe hills, rates from 0.04 on were given up for all entries, because `fedavg`, "
        "`fednova` or `fedel` diverged there; that moved `fedcm`.",
        "- The highest rate tried is the best, and no higher ones were tried, for `fedcm` "
        "(ved hills).",
        "- Diverged beyond the range, and not trained again within it, and so without result: "
        "`fednova` (severe hills).",
        "- Still with a rate that was given up, because nobody has trained them again: `moon` "
        "(severe hills).",
    ]


def test_who_was_not_played_has_not_lost() -> None:
    table = ours(FOUND)
    assert "| `scaffold+momentum` | not played | not played | not played | not played |" in table
    one = "ved (1 of 4 played)"
    assert f"| `scaffold+sharpness` | not played | {one} | not played | {one} |" in table


def test_every_match_without_a_result_has_a_reason() -> None:
    lost = a_record("ved hills", "moon", [1.0], diverged=[1])
    gone = Record(
        "ved hills",
        "fedel",
        {"arena": "ved hills", "entry": "fedel", "plan": PLAN, "seconds": 1.0},
    )
    reasons = unplayed({**FOUND, ("ved hills", "moon"): lost, ("ved hills", "fedel"): gone})
    assert reasons["ved hills: moon"] == "diverged for seed 1"
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
    # Twice the same count: the larger share is the most.
    wins = {name: a_record("ved level", name, [v + 20 for v in last]) for name, last in (
        ("fedavg", [20.0, 22.0, 21.0]), ("scaffold", [18.0, 20.1, 18.9]),
    )}  # fmt: skip
    both = default({**FOUND, **records(*wins.values())})
    assert "the most is 1 of 4 (`scaffold`: one model, hills)." in both
    said = default({**FOUND, **records(a_record("ved level", "fedavg", [40.0, 44.0, 42.0]))})
    assert "Nobody is; the most is 1 of 4 (`scaffold`: one model, hills)." in said
    assert "hills take 50 to 50 % off" in said


def test_fedavg_is_recorded_below_the_rate_at_which_it_diverges_in_other_words() -> None:
    found = read_records(RECORDS)
    assert edge("severe hills", found) == 0.1439
    assert [found["severe hills", twin].content["settings"]["rate"] for twin in TWINS] == [
        0.08859, 0.08859, 0.08859,
    ]  # fmt: skip
    # They train the same models: the errors differ by less than a hundredth of a Wh.
    ends = [found["severe hills", twin].errors("global") for twin in TWINS]
    assert all(ends[0][seed] == approx(own[seed], abs=0.01) for own in ends[1:] for seed in own)


def test_the_page_is_what_the_records_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(read_records(RECORDS))
