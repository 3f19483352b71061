"""What the default policy refuses a server that lies, question by question."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from fedwatt.deploy import node
from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.error_vectors import judging_layout
from fedwatt.deploy.flower import VEHICLE_REFUSED
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.one_vehicle import local_work
from fedwatt.deploy.policy import Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.questions import RoundQuestion
from fedwatt.deploy.secure_exchange import NoSum, SecretSum, SecureExchange
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.runs import from_toml
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, make_fleet
from tests.deploy.loopback import Loopback
from tests.deploy.test_secure import secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("policy") / "fleet")


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


def renamed(question: Content, run: str, label: str, shift: float = 0.0) -> Content:
    """The question as of another run and method, its model changed by `shift`."""
    values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
    config = str(values["config"]).replace('label = "fedavg"', f'label = "{label}"')
    assert label in config
    weights = question.arrays["weights"] + np.float32(shift)
    own = {"run": run, "label": label, "config": config}
    return Content(values | own, {**question.arrays, "weights": weights})


def round_layout(asked: Asked) -> Callable[[int], Layout]:
    config, question = from_toml(asked.text), asked.questions["secure-train"]
    model = asked.grid.vehicles[1]._task(question).local.model
    return lambda called: reply_layout(
        config.methods[0].method, model, config.secure, vehicles=called
    )


def train(asked: Asked, question: Content, out: Path, names: list[str]) -> SecretSum:
    """A sum of a round that a lying server asks for."""
    layout, config = round_layout(asked), from_toml(str(question.values["config"]))
    return lying_server(asked.grid, asked.run, config, question, out, names, "secure-train", layout)


def test_the_same_round_under_another_name_does_not_give_one_vehicle_away(
    asked: Asked, tmp_path: Path
) -> None:
    """Two sums of one round, the second without a victim: neither its n_k nor its Δ come out."""
    question = asked.questions["secure-train"]
    names = sorted(v.name for v in asked.grid.vehicles.values())
    sums = []
    for left_out in (0, 1):
        again = renamed(question, f"run {left_out}", f"method {left_out}")
        sums.append(train(asked, again, tmp_path / str(left_out), names[left_out:]).sums)
    (victim,) = (v for v in asked.grid.vehicles.values() if v.name == names[0])
    task = victim._task(question)
    windows = task.local.members.windows(0)
    weight = sums[0]["weight"][0] - sums[1]["weight"][0]
    assert weight != windows
    asked_for = RoundQuestion.read(question, task.size)
    true = local_work(task.local, task.method, asked_for, {}).deltas[0].double().numpy()
    # What a server that knows of the noise would do: the fleet's mean, and what differs from it.
    mean = sums[0]["delta"] / sums[0]["weight"][0]
    rest = sums[0]["delta"] - sums[1]["delta"] - weight * mean
    found = mean + rest / (sums[0]["weight"][0] / 4)
    assert np.linalg.norm(found - true) > 2 * np.linalg.norm(true)
    # An owner who wants more is asked nothing without noise, in any run.
    noisy = Guard(replace(victim.board.policy, noise=1.0), victim.guard.ledger)
    with pytest.raises(Refusal, match="more noise"):
        noisy.configuration(from_toml(asked.text))


@pytest.mark.parametrize("shift", [1e-6, 1.0])
def test_a_model_that_no_round_made_is_not_trained(
    asked: Asked, tmp_path: Path, shift: float
) -> None:
    """Imprinted units need models of the server's own making; vehicles know that these are none."""
    names = sorted(v.name for v in asked.grid.vehicles.values())
    first, judged = asked.questions["secure-train"], asked.questions["secure-evaluate"]
    made = {n: v for n, v in judged.values.items() if n.startswith("made.")}
    later = Content(first.values | made, judged.arrays)
    for about, question in (("seed", first), ("sum", later), ("nothing", judged)):
        values = first.values | (made if about == "sum" else {})
        crafted = renamed(
            Content(values, question.arrays), f"{about} {shift}", f"{about} {shift}", shift
        )
        with pytest.raises(NoSum):
            train(asked, crafted, tmp_path / about, names)
        refused = refusals_in(tmp_path / about)
        assert refused == {name: {"followed": 1} for name in names}
    # What the round did make is trained: the lie was in the model and nowhere else.
    honest = renamed(later, f"honest {shift}", f"honest {shift}")
    assert train(asked, honest, tmp_path / "honest", names).survivors == tuple(names)


def test_words_that_belong_to_another_step_are_found_out(asked: Asked, tmp_path: Path) -> None:
    # Twice the step, with twice the words and the same weight: the pads in them give it away.
    names = sorted(v.name for v in asked.grid.vehicles.values())
    first, judged = asked.questions["secure-train"], asked.questions["secure-evaluate"]
    made = {n: v for n, v in judged.values.items() if n.startswith("made.")}
    step = judged.arrays["weights"] - first.arrays["weights"]
    longer = {"weights": first.arrays["weights"] + 2 * step}
    doubled = {"made.words": [2 * word for word in made["made.words"]]}
    half = made["made.weight"] / 2
    lighter, divided = {"made.weight": half, "made.divisor": half}, {"made.divisor": half}
    for number, lie in enumerate((doubled, lighter, divided)):
        question = renamed(
            Content(first.values | made | lie, longer), f"run {number}", f"own {number}"
        )
        with pytest.raises(NoSum):
            train(asked, question, tmp_path / str(number), names)
        assert refusals_in(tmp_path / str(number)) == {name: {"followed": 1} for name in names}


def test_words_of_another_size_than_the_answers_are_refused(asked: Asked, tmp_path: Path) -> None:
    # Errors are made of 64 bits; cut to 48 they would add up to nonsense that nobody notices.
    config, question = from_toml(asked.text), asked.questions["secure-evaluate"]
    names = [v.name for v in asked.grid.vehicles.values()]
    with pytest.raises(NoSum) as ended:
        lying_server(
            asked.grid,
            asked.run,
            config,
            renamed(question, "short words", "short"),
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
    known, crafted = (renamed(question, "two stories", "two", shift) for shift in (0.0, 1.0))

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


def test_a_refusal_says_the_rule_and_nothing_else(fleet: Path, asked: Asked) -> None:
    downgraded = with_config(asked.questions["secure-keys"], "enabled = true", "enabled = false")
    message = Message(to_records(downgraded), 7, "train")
    message.metadata.__dict__["_message_id"] = "1"
    reply = node.answer(asked.grid.vehicles[1], message)
    assert (reply.error.code, reply.error.reason) == (VEHICLE_REFUSED, "masks")
