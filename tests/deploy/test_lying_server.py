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
from fedwatt.deploy.error_vectors import judging_layout, strata_layout
from fedwatt.deploy.flower import VEHICLE_REFUSED
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.one_vehicle import local_work
from fedwatt.deploy.parts import NoSum
from fedwatt.deploy.policy import Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.questions import RoundQuestion
from fedwatt.deploy.secure_exchange import SecureExchange
from fedwatt.deploy.sums import SecretSum
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.compose import reply_layout
from fedwatt.runs import from_toml
from fedwatt.runs.level import LEVEL
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, make_fleet
from tests.deploy.loopback import Loopback
from tests.deploy.test_secure import secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("policy") / "fleet")


class Asked:
    """A finished run of a guarded fleet, and the questions that its vehicles were asked."""

    def __init__(self, fleet: Path, folder: Path, text: str = "", **rules: object) -> None:
        self.text = text or secured(fleet, rounds=1)
        self.grid = guarded(fleet, folder / "state", **rules)
        self.questions: dict[str, Content] = {}
        vehicle = self.grid.vehicles[1]
        answer = vehicle.answer

        def kept(kind, records):
            question = from_records(records)
            if question.values.get("round", 0) <= 1:  # later, the mean of models is judged
                self.questions[kind] = question
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
    shutil.copy(run / "roster.jsonl", out)
    roster = Roster(Exchange(grid, 0.001), config, out / "roster.jsonl")
    roster.load()
    roster.refresh()
    state = RunState.begin(out, resume=True)
    told = question if callable(question) else lambda name: question
    exchange = SecureExchange(roster, state, config.secure, told(names[0]).values)
    return exchange.total("lie", names, layout(len(names)), kind, told, 1.0)


def renamed(
    question: Content, run: str, label: str = "fedavg", shift: float = 0.0, round: int = 0
) -> Content:
    """The question as of another run and method, its model changed by `shift`."""
    values = {n: v for n, v in question.values.items() if not n.startswith("secure.")}
    config = str(values["config"]).replace('label = "fedavg"', f'label = "{label}"')
    assert label in config
    weights = question.arrays["weights"] + np.float32(shift)
    own = {"run": run, "label": label, "config": config, "round": round}
    return Content(values | own, {**question.arrays, "weights": weights})


def lies_about(asked: Asked, made: dict[str, object]) -> Content:
    """The first round's question, with what is said of how the model after it was made."""
    judged = asked.questions["secure-evaluate"]
    told = {n: v for n, v in judged.values.items() if n.startswith("made.")}
    return Content(asked.questions["secure-train"].values | told | made, judged.arrays)


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
    asked_for = RoundQuestion.read(question, task.size, "float32")
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
    first, later = asked.questions["secure-train"], lies_about(asked, {})
    nothing, number = replace(first, arrays=later.arrays), 10 if shift < 1 else 20
    for about, question in {"seed": first, "sum": later, "nothing": nothing}.items():
        number += 1
        crafted = renamed(question, f"{about} {shift}", shift=shift, round=number)
        with pytest.raises(NoSum):
            train(asked, crafted, tmp_path / about, names)
        refused = refusals_in(tmp_path / about)
        assert refused == {name: {"followed": 1} for name in names}
    # What the round did make is trained: the lie was in the model and nowhere else.
    honest = renamed(later, f"honest {shift}", round=number)
    assert train(asked, honest, tmp_path / "honest", names).survivors == tuple(names)


def test_words_that_belong_to_another_step_are_found_out(asked: Asked, tmp_path: Path) -> None:
    # Twice the step, with twice the words and the same weight: the pads in them give it away.
    names = sorted(v.name for v in asked.grid.vehicles.values())
    first, later = asked.questions["secure-train"], lies_about(asked, {})
    step = later.arrays["weights"] - first.arrays["weights"]
    longer = {"weights": first.arrays["weights"] + 2 * step}
    doubled = {"made.words": [2 * word for word in later.values["made.words"]]}
    half = later.values["made.weight"] / 2
    lighter, divided = {"made.weight": half, "made.divisor": half}, {"made.divisor": half}
    for number, lie in enumerate((doubled, lighter, divided)):
        lied = replace(lies_about(asked, lie), arrays=longer)
        question = renamed(lied, f"longer {number}", round=30 + number)
        with pytest.raises(NoSum):
            train(asked, question, tmp_path / str(number), names)
        assert refusals_in(tmp_path / str(number)) == {name: {"followed": 1} for name in names}
        assert knows(asked, question) is False  # and not merely unable to tell


def knows(asked: Asked, question: Content) -> bool | None:
    """Whether a vehicle follows the model of a question."""
    vehicle = asked.grid.vehicles[1]
    return vehicle.followed.follows(vehicle._task(question))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bits = 48", "bits = 64"),
        ("delta_limit = 16.0", "delta_limit = 8.0"),
        ("windows_limit = 200000", "windows_limit = 100000"),
        ("participation = 1.0", "participation = 0.5"),
        ("rate = ", "rate = 1"),
    ],
)
def test_a_sum_is_checked_by_the_settings_it_was_asked_for_with(
    asked: Asked, tmp_path: Path, old: str, new: str
) -> None:
    # By other settings the pads in the same words are of another size, so another step would fit.
    question, names = lies_about(asked, {}), sorted(v.name for v in asked.grid.vehicles.values())
    assert knows(asked, question) is True
    changed = renamed(with_config(question, old, new), f"with {new}", round=5)
    assert knows(asked, changed) is None
    if old == "delta_limit = 16.0":
        with pytest.raises(NoSum):
            train(asked, changed, tmp_path / "changed", names)
        assert refusals_in(tmp_path / "changed") == {name: {"followed": 1} for name in names}
    # Deadlines may change when a run goes on, and say nothing of its models.
    assert knows(asked, with_config(question, "round_seconds = 5", "round_seconds = 6")) is True


@pytest.mark.parametrize(("divisor", "follows"), [(4.0, True), (1e12, False), (np.inf, False)])
def test_a_divisor_beyond_any_fleet_is_found_out(
    fleet: Path, tmp_path: Path, divisor: float, follows: bool
) -> None:
    """Rounding of a model times 10^12 has room for any sum, so any words would do."""
    private = Asked(fleet, tmp_path, secured(fleet, rounds=1, method="fedavg@private"))
    question = lies_about(private, {"made.divisor": divisor})
    if not follows:
        question = replace(question, arrays=private.questions["secure-train"].arrays)
    assert knows(private, question) is follows


@pytest.mark.parametrize("kind", ["secure-evaluate", "secure-strata", "secure-train"])
def test_a_model_of_another_precision_is_not_answered(
    asked: Asked, tmp_path: Path, kind: str
) -> None:
    # Rounded on board, all of these would be the one model that was answered about already.
    config, names = from_toml(asked.text), sorted(v.name for v in asked.grid.vehicles.values())
    question = renamed(asked.questions[kind], f"precise {kind}", round=6)
    wide = {"weights": question.arrays["weights"].astype(np.float64)}
    layout = round_layout(asked) if kind == "secure-train" else judging_layout
    with pytest.raises(NoSum) as ended:
        lying_server(
            asked.grid, asked.run, config, replace(question, arrays=wide),
            tmp_path / kind, names, kind, layout,
        )  # fmt: skip
    assert "0 vehicles sent their vectors" in str(ended.value)


def test_level_models_of_the_servers_own_are_counted(fleet: Path, tmp_path: Path) -> None:
    """A crafted level model beside an honest one reads a window as any other crafted model does."""
    own = Asked(fleet, tmp_path / "level", unfollowed_a_day=2)
    config, names = from_toml(own.text), sorted(v.name for v in own.grid.vehicles.values())
    question = own.questions["secure-strata"]
    rules = []
    for number in range(4):
        crafted = np.full(3, number, dtype=np.float32)
        arrays = {**question.arrays, LEVEL: crafted}
        again = replace(renamed(question, "level"), arrays=arrays)
        with pytest.raises(NoSum):
            lying_server(
                own.grid, own.run, config, again, tmp_path / str(number), names, "secure-strata"
            )
        rules.append(refusals_in(tmp_path / str(number)).get(names[0], {}))
    assert [list(refused) for refused in rules] == [[]] * 2 + [["unfollowed_a_day"]] * 2
    # What a day refuses is not used up: the same question is answered on the next.
    mean = renamed(question, "mean", shift=0.5)
    about = names, "secure-strata", strata_layout
    with pytest.raises(NoSum):
        lying_server(own.grid, own.run, config, mean, tmp_path / "today", *about)
    assert refusals_in(tmp_path / "today") == {name: {"unfollowed_a_day": 1} for name in names}
    for vehicle in own.grid.vehicles.values():
        vehicle.guard.ledger.day = lambda: "2100-01-01"
    found = lying_server(own.grid, own.run, config, mean, tmp_path / "tomorrow", *about)
    assert found.survivors == tuple(names)


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
    known, crafted = (renamed(question, "two stories", "two", shift) for shift in (0.5, 1.0))

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
