import json

from fedwatt.telemetry import Account


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
