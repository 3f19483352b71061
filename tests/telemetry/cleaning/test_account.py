import json

from fedwatt.telemetry.cleaning.account import Account


def test_accounts_add_up_and_survive_json():
    one = Account.passed_over("rows", 3, "duplicate") + Account.of("kept", "rows", 7)
    both = (
        one + Account.passed_over("rows", 2, "no time") + Account.of("repaired", "values", 4, "x")
    )
    assert both.count("read", "rows") == 5
    assert both.count("dropped", "rows") == 5
    assert both.count("dropped", "rows", "no time") == 2
    assert Account.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_zero_leaves_no_entry():
    assert Account.of("dropped", "rows", 0, "never") == Account()


def test_sentence_names_the_most_frequent_reason_first():
    account = Account.of("dropped", "trips", 1, "a") + Account.of("dropped", "trips", 5, "b")
    assert account.sentence() == "0 trips kept; 6 dropped: 5 b, 1 a."


def test_one_is_not_plural():
    assert Account.of("kept", "vehicles", 1).sentence("vehicles") == "1 vehicle kept; 0 dropped."


def test_cut_trips_are_counted_before_and_after():
    kept = Account.of("kept", "trips", 89)
    assert (kept + Account.of("kept", "parts", 89)).sentence() == "89 trips kept; 0 dropped."
    cut = kept + Account.of("kept", "parts", 97)
    assert cut.sentence() == "89 trips kept, cut at gaps into 97; 0 dropped."
    assert cut.sentence("rows") == "0 rows kept; 0 dropped."
