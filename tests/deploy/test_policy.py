"""A vehicle's policy: written, signed, read, and what it remembers of its answers."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from typer.testing import CliRunner

from fedwatt import deploy
from fedwatt.cli import app
from fedwatt.deploy.board import Board
from fedwatt.deploy.keys import Depot
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.policy import (
    OPEN,
    POLICY,
    RULES,
    Policy,
    create_owner,
    differences,
    from_text,
    install,
    on_board,
    to_text,
)
from fedwatt.errors import DataError, SettingError


def test_a_policy_survives_its_file() -> None:
    for policy in (Policy(), OPEN, Policy(methods=("fedavg",), servers=("ab" * 32,))):
        assert from_text(to_text(policy)) == policy
    assert "# fewest vehicles that such a sum may be of\nsmallest_sum = 3\n" in to_text(Policy())
    with pytest.raises(SettingError, match="Did you mean 'masks'"):
        from_text("mask = true")


def test_every_rule_that_is_refused_by_has_a_sentence_and_every_sentence_a_rule() -> None:
    named = re.compile(r'(?:_allow|Refusal)\(\s*"(\w+)"|RULES\["(\w+)"\]|RULES\[\'(\w+)\'\]')
    texts = [file.read_text() for file in Path(deploy.__file__).parent.glob("*.py")]
    used = {"".join(found) for text in texts for found in named.findall(text)}
    assert used == RULES.keys()
    with pytest.raises(SettingError, match="a sum of one hides nothing"):
        Policy(smallest_sum=1)


def test_only_what_the_owner_signed_counts(tmp_path: Path) -> None:
    owner, car = tmp_path / "owner", tmp_path / "car"
    create_owner(owner)
    assert (owner / "owner.key").stat().st_mode & 0o077 == 0
    assert on_board(car) == on_board(None) == Policy()
    install(Policy(steps=7), car, owner)
    assert on_board(car) == Policy(steps=7)
    # Taken away, the owner's policy is not the defaults: those may allow more.
    kept = (car / POLICY).rename(tmp_path / "kept")
    for gone in ("policy.sig", "owner.pub"):
        with pytest.raises(DataError, match="the owner's policy is gone"):
            on_board(car)
        (car / gone).rename(tmp_path / gone)
    assert on_board(car) == Policy()
    for back in (kept, tmp_path / "policy.sig", tmp_path / "owner.pub"):
        shutil.move(back, car / (POLICY if back == kept else back.name))
    assert differences(on_board(car)) == [
        "steps = 7 (default 20000): most steps of training for one answer"
    ]
    (car / POLICY).write_text("masks = false\n")
    with pytest.raises(DataError, match="not what the owner signed"):
        on_board(car)
    (car / "policy.sig").unlink()
    with pytest.raises(DataError, match="no signature"):
        on_board(car)
    # Another owner's signature is none, whatever key lies beside it for now.
    create_owner(tmp_path / "thief")
    install(OPEN, car, tmp_path / "thief")
    shutil.copy(owner / "owner.pub", car / "owner.pub")
    with pytest.raises(DataError, match="not what the owner signed"):
        on_board(car)


def test_a_depot_puts_the_default_policy_and_a_voucher_into_every_vehicle(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "depot")
    depot.create(["127.0.0.1"])
    folder = depot.add_vehicle("car-1")
    assert Board.of(folder, "car-1").policy == Policy()
    with pytest.raises(DataError, match="not vouched for"):
        Board.of(folder, "car-2")
    install(replace(Policy(), steps=5), folder, depot.folder)
    depot.rotate_vehicle("car-1")
    assert Board.of(folder, "car-1").policy.steps == 5  # a new key is no new policy


def test_policies_from_the_command_line(tmp_path: Path) -> None:
    owner, car = str(tmp_path / "owner"), tmp_path / "car"
    create_owner(Path(owner))
    run = CliRunner().invoke
    command = ["deploy", "policy", "write", str(car), "--owner", owner, "--set", "steps=9"]
    written = run(app, command)
    assert written.exit_code == 0 and "steps = 9 (default 20000)" in written.output
    config = tmp_path / "run.toml"
    config.write_text("seeds = [1]\n")
    refused = run(app, ["deploy", "policy", "check", str(car), "--config", str(config)])
    words = " ".join(refused.output.split())  # lines break where the terminal ends
    assert refused.exit_code == 1 and "secure.enabled = true" in words
    config.write_text("seeds = [1]\n[secure]\nenabled = true\n")
    assert run(app, ["deploy", "policy", "check", str(car), "--config", str(config)]).exit_code == 0
    config.write_text("seeds = [1]\n[secure]\nenabled = true\n[deploy]\nroutes = true\n")
    assert run(app, [*command[:-1], "routes=false"]).exit_code == 0
    checked = run(app, ["deploy", "policy", "check", str(car), "--config", str(config)])
    assert "would be answered, but for its routes" in " ".join(checked.output.split())
    explained = run(app, ["deploy", "policy", "explain", str(car)])
    assert "smallest_sum" in explained.output
    (car / POLICY).write_text("steps = 8\n")
    assert run(app, ["deploy", "policy", "sign", str(car), "--owner", owner]).exit_code == 0
    assert on_board(car).steps == 8


def test_a_ledger_outlasts_restarts_and_damage(tmp_path: Path) -> None:
    day = ["2026-01-01"]
    ledger = Ledger(tmp_path, lambda: day[0])
    ledger.give(("train", 1), ("train", "x"))
    ledger.summed("judge", ["a", "b", "c"])
    ledger.summed("judge", ["a", "b"])
    again = Ledger(tmp_path, lambda: day[0])
    assert (again.given("train", 1), again.given("train", 2)) == (1, 0)
    assert (again.answers_today(), again.changes_today()) == (1, 1)
    day[0] = "2026-01-02"
    assert (again.answers_today(), again.given("train", 1)) == (0, 1)
    again.path.write_text("")
    damaged = Ledger(tmp_path, lambda: day[0])
    assert damaged.answers_today() > 10**9  # nothing today, and the vehicle lives on
    day[0] = "2026-01-03"
    assert damaged.answers_today() == 0
