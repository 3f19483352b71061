"""A vehicle's policy: written, signed, read, and what the default one refuses a lying server."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message
from typer.testing import CliRunner

from fedwatt import deploy
from fedwatt.cli import app
from fedwatt.deploy import node
from fedwatt.deploy.board import Board
from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.error_vectors import judging_layout
from fedwatt.deploy.flower import VEHICLE_REFUSED
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.keys import Depot
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.policy import (
    OPEN,
    POLICY,
    RULES,
    Policy,
    Refusal,
    create_owner,
    differences,
    from_text,
    install,
    on_board,
    to_text,
)
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.secure_exchange import NoSum, SecretSum, SecureExchange
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.privacy import Budget
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.runs import from_toml
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, make_fleet
from tests.deploy.loopback import Loopback
from tests.deploy.test_secure import assert_same_models, plain, secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("policy") / "fleet")


# ---------------------------------------------------------------------------------- on its own
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


# ------------------------------------------------------------------------- a fleet that agrees
def test_a_fleet_with_the_default_policy_trains_the_same_model(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "fo-ri-fedavg")
    grid = guarded(fleet, tmp_path / "a")
    strict = deployed(text, grid, tmp_path / "strict")
    assert not Conduct.read(strict / "conduct.json").refusals
    clear = deployed(plain(text), guarded(fleet, tmp_path / "b", masks=False), tmp_path / "clear")
    assert_same_models(strict, clear)
    for name in ("test_rmse", "validation_rmse", "test_mae", "test_rmse_macro"):
        masked, known = (read_table(run, "rounds")[name].to_pylist() for run in (strict, clear))
        assert masked == pytest.approx(known, rel=1e-6)
    (row,) = [r for r in read_table(strict, "vehicles").to_pylist()
              if r["stratum"] == "all" and r["model"] == "last"]  # fmt: skip
    assert row["vehicle"] == "all vehicles"
    assert row["rmse"] == pytest.approx(read_table(clear, "rounds")["test_rmse"].to_pylist()[-1])


def test_a_resumed_run_goes_on_though_vehicles_answer_once(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "fedavg", rounds=3)
    whole = deployed(text, guarded(fleet, tmp_path / "a"), tmp_path / "whole")
    grid = guarded(fleet, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=2)
    for file in sorted((tmp_path / "cut" / "checkpoint").rglob("round-*"))[-1:]:
        shutil.rmtree(file)  # the server was killed before it wrote the last one
    resumed = deployed(text, grid, tmp_path / "cut", resume=True)
    assert_same_models(resumed, whole)


# --------------------------------------------------------------------------- a server that lies
class Asked:
    """A finished run of a guarded fleet, and the questions that its vehicles were asked."""

    def __init__(self, fleet: Path, folder: Path) -> None:
        self.text = secured(fleet, rounds=1)
        self.grid = guarded(fleet, folder / "state")
        self.questions: dict[str, Content] = {}
        vehicle = self.grid.vehicles[1]
        answer = vehicle.answer

        def kept(kind, records):
            self.questions[kind] = from_records(records)
            return answer(kind, records)

        vehicle.answer = kept  # type: ignore[method-assign]
        self.run = deployed(self.text, self.grid, folder / "run")
        vehicle.answer = answer  # type: ignore[method-assign]

    def ask(self, kind: str, question: Content, vehicle: int = 1) -> None:
        self.grid.vehicles[vehicle].answer(kind, to_records(question))


@pytest.fixture(scope="module")
def asked(fleet: Path, tmp_path_factory, lasting_identity) -> Asked:
    return Asked(fleet, tmp_path_factory.mktemp("asked"))


def with_config(question: Content, old: str, new: str) -> Content:
    text = str(question.values["config"])
    assert old in text
    return replace(question, values={**question.values, "config": text.replace(old, new)})


def test_no_question_is_answered_in_the_clear(asked: Asked) -> None:
    # Σe² of crafted weights gave back a window; without masks nothing is given at all.
    for kind in ("train", "evaluate", "strata", "personalise"):
        question = asked.questions[f"secure-{kind}" if kind != "personalise" else "secure-train"]
        values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
        with pytest.raises(Refusal) as refusal:
            asked.ask(kind, replace(question, values=values))
        assert refusal.value.rule == "masks"


def test_a_downgrade_to_plain_replies_is_refused(asked: Asked) -> None:
    downgraded = with_config(asked.questions["secure-keys"], "enabled = true", "enabled = false")
    for kind in ("enrol", "train", "evaluate", "secure-keys"):
        with pytest.raises(Refusal) as refusal:
            asked.ask(kind, downgraded)
        assert refusal.value.rule == "masks"


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("stride = 20", "stride = 1", "data"),
        ("evaluation_stride = 10", "evaluation_stride = 500", "data"),
        ("split_seed = 0", "split_seed = 1", "data"),
        ("window = 10", "window = 1", "data"),
    ],
)
def test_the_server_cannot_choose_windows(asked: Asked, old: str, new: str, rule: str) -> None:
    with pytest.raises(Refusal) as refusal:
        asked.ask("enrol", with_config(asked.questions["secure-keys"], old, new))
    assert refusal.value.rule == rule


@pytest.mark.parametrize(
    ("asked_for", "rules", "rule"),
    [
        ("batch = 16\nepochs = 100000", {}, "work"),
        ("batch = 16", {"fewest_trained": 10_000}, "few_trained"),  # nobody has so many windows
    ],
)
def test_endless_work_and_a_reply_of_few_windows_are_refused_before_they_begin(
    asked_for: str, rules: dict[str, int], rule: str, fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, rounds=1).replace("batch = 16", asked_for)
    grid = guarded(fleet, tmp_path / "state", **rules)
    run = deployed(text, grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{rule}] * 4
    assert not any(kind == "secure-train" for _, kind, _ in grid.sent)


def test_a_vehicle_trains_until_its_lifetime_is_spent(fleet: Path, tmp_path: Path) -> None:
    # z = 4: two rounds are ε = 1.48 at δ = 1e-5 against a server, who may know who draws itself,
    # and three are 1.85.
    enough = Budget(4.0, 1.0, 1e-5).epsilon(2)
    more = "noise_multiplier = 4.0\nclip_norm = 0.05\n"
    text = secured(fleet, "fedavg@private", rounds=3, more=more)
    text = text.replace("participation = 1.0", 'participation = 0.5\nsampling = "poisson"')
    grid = guarded(fleet, tmp_path / "state", lifetime_epsilon=enough)
    run = deployed(text, grid, tmp_path / "run")
    assert read_table(run, "rounds")["replies"].to_pylist() == [0, 4, 4, 0]
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{"lifetime_epsilon"}] * 4
    spent = grid.vehicles[1].spent
    assert spent.epsilon(1e-5, sampled=False) == enough > spent.epsilon(1e-5)  # no more than that


def test_the_same_round_is_not_summed_twice(asked: Asked, tmp_path: Path) -> None:
    # The difference of two sums of one round would be the vehicle that is in only one of them.
    config = from_toml(asked.text)
    for kind in ("secure-train", "secure-evaluate", "secure-strata"):
        question = asked.questions[kind]
        names = [v.name for v in asked.grid.vehicles.values()][:3]
        values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
        again = replace(question, values=values)
        with pytest.raises(NoSum):
            lying_server(asked.grid, asked.run, config, again, tmp_path / kind, names, kind)
        assert refusals_in(tmp_path / kind) == {name: {"answered": 1} for name in names}


def test_another_model_for_the_same_round_is_refused(asked: Asked, tmp_path: Path) -> None:
    config, names = from_toml(asked.text), [v.name for v in asked.grid.vehicles.values()]
    for kind in ("secure-evaluate", "secure-strata", "secure-train"):
        question = asked.questions[kind]
        values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
        arrays = {**question.arrays, "weights": question.arrays["weights"] + np.float32(1e-3)}
        with pytest.raises(NoSum):
            lying_server(
                asked.grid, asked.run, config, Content(values, arrays), tmp_path / kind, names, kind
            )
        assert refusals_in(tmp_path / kind) == {name: {"unannounced": 1} for name in names}


def refusals_in(out: Path) -> dict[str, dict[str, int]]:
    """Who refused what, as the server in this folder heard it."""
    return Conduct.read(out / "conduct.json").refusals


def lying_server(
    grid: Loopback,
    run: Path,
    config,
    question: Content | Callable[[str], Content],
    out: Path,
    names,
    kind: str,
    layout: Callable[[int], Layout] = judging_layout,
) -> SecretSum:
    """Another sum of the same run, by a server that kept nothing and leaves out whom it likes."""
    from fedwatt.deploy.exchange import Exchange
    from fedwatt.deploy.roster import Roster
    from fedwatt.deploy.state import RunState

    out.mkdir()
    shutil.copy(run / "deployment.json", out)
    shutil.copy(run / "roster.json", out)
    roster = Roster(Exchange(grid, 0.001), config, out / "roster.json")
    roster.load()
    roster.refresh()
    state = RunState.begin(out, resume=True)
    told = question if callable(question) else lambda name: question
    exchange = SecureExchange(roster, state, config.secure, told(names[0]).values)
    return exchange.total("lie", names, layout(len(names)), kind, told, 1.0)


def of_run(question: Content, run: str, shift: float) -> Content:
    """The question as of another run, its model changed by next to nothing."""
    values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
    weights = question.arrays["weights"] + np.float32(shift)
    return Content(values | {"run": run}, {**question.arrays, "weights": weights})


def test_a_round_of_another_run_is_answered_and_only_noise_hides_the_difference(
    asked: Asked, tmp_path: Path
) -> None:
    """What the policy cannot prevent, as docs/privacy.md says: n_k of one vehicle, from two sums.

    Runs, rounds and models are the server's to name, and rounds of many vehicles differ by a few.
    """
    config, question = from_toml(asked.text), asked.questions["secure-train"]
    names = sorted(v.name for v in asked.grid.vehicles.values())
    weights = []
    for left_out, shift in ((0, 1e-7), (1, -1e-7)):
        sums = lying_server(
            asked.grid,
            asked.run,
            config,
            of_run(question, f"run {left_out}", shift),
            tmp_path / str(left_out),
            names[left_out:],
            "secure-train",
            lambda called: reply_layout(
                config.methods[0].method,
                asked.grid.vehicles[1]._task(question).local.model,
                config.secure,
                vehicles=called,
            ),
        ).sums
        weights.append(sums["weight"][0])
    (victim,) = (v for v in asked.grid.vehicles.values() if v.name == names[0])
    windows = victim._task(question).local.members.windows(0)
    assert weights[0] - weights[1] == windows > 0
    # An owner who wants noise is asked nothing without it, in any run.
    noisy = Guard(replace(victim.board.policy, noise=1.0), victim.guard.ledger)
    with pytest.raises(Refusal, match="more noise"):
        noisy.configuration(config)


def test_words_of_another_size_than_the_answers_are_refused(asked: Asked, tmp_path: Path) -> None:
    # Errors are made of 64 bits; cut to 48 they would add up to nonsense that nobody notices.
    config, question = from_toml(asked.text), asked.questions["secure-evaluate"]
    names = [v.name for v in asked.grid.vehicles.values()]
    with pytest.raises(NoSum) as ended:
        lying_server(
            asked.grid,
            asked.run,
            config,
            of_run(question, "short words", 2e-7),
            tmp_path / "short",
            names,
            "secure-evaluate",
            lambda called: replace(judging_layout(called), bits=48),
        )
    assert "0 vehicles sent their vectors" in str(ended.value)


def test_a_vehicle_asked_another_question_than_the_others_says_nothing(
    asked: Asked, tmp_path: Path
) -> None:
    # Crafted weights for one, known ones for the rest: the purpose in the keys gives it away.
    config, question = from_toml(asked.text), asked.questions["secure-evaluate"]
    names = sorted(v.name for v in asked.grid.vehicles.values())
    known, crafted = (of_run(question, "two stories", shift) for shift in (3e-7, 1.0))

    def told(name: str) -> Content:
        return crafted if name == names[-1] else known

    found = lying_server(
        asked.grid, asked.run, config, told, tmp_path / "told", names, "secure-evaluate"
    )
    assert found.survivors == tuple(names[:-1])
    assert refusals_in(tmp_path / "told") == {names[-1]: {"question": 1}}
    own = replace(question, values={**question.values, "counted": 7})
    one, other = (Purpose.of("secure-evaluate", q) for q in (question, own))
    assert one == other  # a vehicle's own memory is no difference


def test_too_small_a_sum_is_refused(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "state", smallest_sum=4)  # three of four would do elsewhere
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{"smallest_sum"}] * 4


def test_a_vehicle_without_signed_neighbours_takes_no_part(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "state")
    lonely = grid.vehicles[1]
    grid.vehicles[1] = Vehicle(lonely.folder, lonely.state, board=Board(lonely.board.policy))
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert refusals == {lonely.name: {"signed_sums": refusals[lonely.name]["signed_sums"]}}
    assert read_table(run, "rounds")["replies"].to_pylist()[-1] == 3


def test_a_day_has_so_many_answers_and_changes(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "a", answers_a_day=2)
    with pytest.raises(RunError, match="0 of 4 vehicles answered round 2"):
        deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    conduct = Conduct.read(tmp_path / "run" / "conduct.json")
    assert {rule for own in conduct.refusals.values() for rule in own} == {"answers_a_day"}
    answers = [kind for node, kind, _ in grid.sent if node == 1 and kind.startswith("secure-")]
    vectors = [kind for kind in answers if kind in ("secure-train", "secure-evaluate")]
    assert vectors == ["secure-evaluate", "secure-train"]

    grid = guarded(fleet, tmp_path / "b", set_changes_a_day=0)
    grid.before_push = lambda own: own.offline.add(4) if own.training == 1 else None
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "changed")
    rules = {rule for own in Conduct.read(run / "conduct.json").refusals.values() for rule in own}
    assert rules == {"set_changes_a_day"}
    assert read_table(run, "rounds")["evaluated"].to_pylist() == [True, True, False]


def test_a_refusal_says_the_rule_and_nothing_else(fleet: Path, asked: Asked) -> None:
    downgraded = with_config(asked.questions["secure-keys"], "enabled = true", "enabled = false")
    message = Message(to_records(downgraded), 7, "train")
    message.metadata.__dict__["_message_id"] = "1"
    reply = node.answer(asked.grid.vehicles[1], message)
    assert (reply.error.code, reply.error.reason) == (VEHICLE_REFUSED, "masks")
