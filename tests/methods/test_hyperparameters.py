"""Every hyperparameter of fedwatt's own rules has a meaning, and every meaning a hyperparameter."""

import tomllib
from dataclasses import fields
from pathlib import Path

from typer.testing import CliRunner

import fedwatt.methods
from fedwatt.cli import app
from fedwatt.methods import METHODS, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS


def test_each_is_explained() -> None:
    file = Path(fedwatt.methods.__file__).with_name("hyperparameters.toml")
    explained = set(tomllib.loads(file.read_text(encoding="utf-8")))
    rules = [rule for group in (LOCAL_RULES, SERVERS, DEFENCES) for rule in group.values()]
    explained |= {name for rule in rules for name in rule.meanings}
    named = {field.name for rule in rules for field in fields(rule)}
    named |= {name for method in METHODS for name in get(method).settings}
    assert sorted(named - explained) == [], f"say what these mean in {file.name}, or in `meanings`"
    assert sorted(explained - named) == []


def test_a_rule_of_ones_own_says_what_its_numbers_mean(tmp_path: Path) -> None:
    file = tmp_path / "decay.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from fedwatt.methods.rule import LocalRule\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Decay(LocalRule):\n"
        "    nu: float = 0.1\n"
        "    meanings = {'nu': 'what a step takes away'}\n"
    )
    outcome = CliRunner().invoke(app, ["list", f"{file}:Decay"])
    assert "0.1. what a step takes away" in outcome.output
