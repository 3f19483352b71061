"""Every hyperparameter of fedwatt's own rules has a meaning, and every meaning a hyperparameter."""

import tomllib
from dataclasses import fields
from pathlib import Path

import fedwatt.methods
from fedwatt.methods import METHODS, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS


def test_each_is_explained() -> None:
    file = Path(fedwatt.methods.__file__).with_name("hyperparameters.toml")
    explained = set(tomllib.loads(file.read_text(encoding="utf-8")))
    rules = [rule for group in (LOCAL_RULES, SERVERS, DEFENCES) for rule in group.values()]
    named = {field.name for rule in rules for field in fields(rule)}
    named |= {name for method in METHODS for name in get(method).settings}
    assert sorted(named - explained) == [], f"say what these mean in {file.name}"
    assert sorted(explained - named) == []
