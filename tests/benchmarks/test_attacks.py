"""The report card in the documents is the recorded one, for both fleets."""

import json

from benchmarks.attacks import RESULT, ROOT, attack_table, poisoning_table


def test_the_tables_of_the_documents_are_the_records() -> None:
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    assert [(name, card["vehicles"]) for name, card in found.items()] == [
        ("embedded", 20),
        ("VED", 16),
    ]
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert attack_table(found) in text
    assert poisoning_table(found) in text


def test_a_table_says_what_it_is_of_and_what_is_not_measured() -> None:
    levels = ("plain", "masks, curious", "masks", "masks + policy", "masks + policy + noise")
    figures = dict.fromkeys((*levels, "no messages"), 0.25)
    card = {"vehicles": 7, "victims": 2, "attacks": {"membership": figures}}
    *_, last = attack_table({"embedded": card}).splitlines()
    assert last.startswith(
        "Ran on 7 vehicles of the embedded fleet (simulated); attacks on one vehicle are means "
        "over the first 2. Set, not measured: crafted evaluation: masks, curious, no messages; "
    )
