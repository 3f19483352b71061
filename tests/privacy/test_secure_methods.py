"""Every method makes the same model of the vehicles' sum as of their replies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import METHODS, LocalRule, Method, get
from fedwatt.methods.catalogue import DEFENCES
from fedwatt.methods.defence import selected
from fedwatt.methods.server import Replies, ServerRule
from fedwatt.models import Model, get_model
from fedwatt.privacy.secure.compose import reply_layout, reply_values, secure_fault
from fedwatt.privacy.secure_settings import SecureSettings
from tests.federation.toys import random_fleet
from tests.privacy.exchanges import names_of, terms_of
from tests.privacy.rehearsal import rehearse

SETTINGS = SecureSettings(bits=64)
WINDOWS = [70, 33, 128, 5, 900]
SOUND = [
    *METHODS,
    "scaffold+fractional",
    "fedavg@sgd",
    "fo-ri-fedavg@adagrad",
    "fedprox@yogi",
    "fedprox@nova",
    "fedavg@private",
]


def model_of(method: Method) -> Model:
    return method.adapted(get_model("mlp", window=4, features=2, hidden=(5, 3)))


def replies_to(method: Method, model: Model, round: int, windows: Sequence[int]) -> Replies:
    """Random replies of the form that the method's vehicles send, in float32."""
    rng = np.random.default_rng(round)
    count = len(windows)
    size = model.layout.size
    deltas = torch.from_numpy(0.1 * rng.standard_normal((count, size))).float()
    uploads = {}
    for name, template in method.uploads(model).items():
        if template.dim():
            values = rng.standard_normal((count, *template.shape))
            uploads[name] = torch.from_numpy(values).to(template.dtype)
        else:
            uploads[name] = torch.from_numpy(rng.uniform(1, 40, count))
    if "choice" in method.upload_names:  # the last of three centres has nobody
        chosen = torch.from_numpy(rng.integers(0, 2, count))
        uploads["choice"] = torch.nn.functional.one_hot(chosen, 3).bool()
    if "trained" in method.upload_names:
        sizes = torch.tensor([np.prod(shape) for shape in model.layout.shapes.values()])
        trained = torch.from_numpy(rng.random((count, len(sizes))) < 0.4)
        trained[:, 0] = False  # a tensor that nobody trained
        uploads["trained"] = trained
        deltas = deltas * trained.repeat_interleave(sizes.long(), dim=-1)
    return Replies(
        deltas,
        torch.tensor(windows, dtype=torch.float64),
        12,
        5000.0,
        np.random.default_rng(100 + round),
        uploads,
        0.5,
    )


def summed(method: Method, model: Model, replies: Replies, settings=SETTINGS, last=None) -> Replies:
    """Return the replies by way of a secure sum, from which vehicles may drop out."""
    layout = reply_layout(method, model, settings, vehicles=len(replies.windows))
    words = {}
    for row, name in enumerate(names_of(len(replies.windows))):
        uploads = {key: values[row] for key, values in replies.uploads.items()}
        windows = int(replies.windows[row])
        values = reply_values(method, model, replies.deltas[row], windows, uploads, layout)
        words[name] = layout.encode(values)
    terms = terms_of(len(words), layout.length, bits=settings.bits)
    total, survivors = rehearse(terms, words, last)
    sums = layout.decode(total)
    assert sums["clipped"] == 0
    delta, weight, uploads = method.mean_of_sums(model, sums)
    rows = len(survivors)
    return replace(
        replies,
        deltas=delta.expand(rows, -1),
        windows=torch.full((rows,), weight / rows, dtype=torch.float64),
        uploads={name: value.expand(rows, *value.shape) for name, value in uploads.items()},
    )


def after_rounds(method: Method, *, secure: bool, windows: Sequence[int] = WINDOWS) -> torch.Tensor:
    """Weights after three rounds, in float64, and all that the server keeps."""
    model = model_of(method)
    weights = model.initial(np.random.default_rng(0)).double()
    state = method.server.state(model)
    for round in range(3):
        replies = replies_to(method, model, round, windows)
        if secure:
            replies = summed(method, model, replies)
        state, weights = method.update(state, weights, replies)
    return torch.cat([weights, *(table.double().flatten() for table in state.values())])


@pytest.mark.parametrize("name", SOUND)
def test_sums_make_the_model_that_replies_make(name: str) -> None:
    # Noise that vehicles add under masks is never the same; tests/privacy/test_noise_shares has it.
    settings = {
        "fedavg@private": {"noise_multiplier": 0.0},
        "ifca": {"centres": 3, "warm_rounds": 0},
    }
    method = get(name, **settings.get(name, {}))
    plain = after_rounds(method, secure=False)
    secure = after_rounds(method, secure=True)
    # Steps are 2^-32 n Δ and finer, over some hundred windows; Adam divides by √v + τ ≈ 0.01.
    assert secure == pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scaffold", {"weighting": "uniform"}),
        ("scaffold", {"server_learning_rate": 0.5}),
        ("fedel", {"weighting": "uniform"}),
        ("feddyn", {"correction": False}),
        ("fedavg@private", {"noise_multiplier": 0.0, "clip_norm": 0.2}),
        ("fedavg@private", {"noise_multiplier": 0.0, "clip_norm": 100.0}),
    ],
)
def test_so_they_do_with_other_settings(name: str, settings: dict) -> None:
    method = get(name, **settings)
    plain = after_rounds(method, secure=False)
    secure = after_rounds(method, secure=True)
    assert secure == pytest.approx(plain, abs=1e-9)


def test_two_vehicles_by_hand() -> None:
    # Δ̄ = (1·2 + 3·(-4)) / 4 = -2.5.
    method = get("fedavg")
    model = get_model("mlp", window=1, features=1, hidden=())
    delta = torch.tensor([[2.0], [-4.0]]).expand(2, model.layout.size)
    windows = torch.tensor([1.0, 3.0], dtype=torch.float64)
    replies = Replies(delta, windows, 2, 4.0, np.random.default_rng(0))
    mean = summed(method, model, replies)
    assert mean.deltas.tolist() == [[-2.5] * model.layout.size] * 2
    assert mean.windows.tolist() == [2.0, 2.0]


def test_what_a_rule_of_ones_own_hands_up_is_added_up_too() -> None:
    class Telling(LocalRule):
        def uploads(self, model):
            return {"told": torch.zeros(2, 1)}

    method = Method("telling", (Telling(),))
    model = get_model("mlp", window=1, features=1)
    layout = reply_layout(method, model, SecureSettings(windows_limit=10), vehicles=2)
    assert list(layout.fields.items())[2:] == [("told", (2, 10 * 256.0))]
    messages = torch.tensor([[[1.0], [4.0]], [[5.0], [-4.0]]])
    delta = torch.zeros(2, model.layout.size)
    windows = torch.tensor([1.0, 3.0], dtype=torch.float64)
    replies = Replies(delta, windows, 2, 4.0, np.random.default_rng(0), {"told": messages})
    # (1·1 + 3·5) / 4 = 4 and (1·4 - 3·4) / 4 = -2, for both survivors.
    assert summed(method, model, replies).uploads["told"].tolist() == [[[4.0], [-2.0]]] * 2


def test_survivors_weights_are_known_together_only() -> None:
    method = get("fo-ri-fedavg")
    model = model_of(method)
    layout = reply_layout(method, model, SETTINGS, vehicles=3)
    assert list(layout.fields) == ["weight", "delta"]
    replies = summed(method, model, replies_to(method, model, 0, [10, 20, 60]))
    assert replies.windows.tolist() == [30.0] * 3
    assert not replies.uploads


@pytest.mark.parametrize("name", DEFENCES)
def test_defences_are_refused(name: str) -> None:
    method = get(f"fedavg@{name}")
    assert "hides them" in (secure_fault(method) or "")
    with pytest.raises(SettingError, match="compares single replies"):
        reply_layout(method, model_of(method), SETTINGS, vehicles=5)


def test_adaptive_clipping_and_unknown_servers_are_refused() -> None:
    assert "adaptive clipping" in (secure_fault(get("fedavg@private", clipping="adaptive")) or "")

    class Longest(ServerRule):
        def update(self, state, weights, replies):
            return state, weights + replies.deltas[replies.deltas.norm(dim=-1).argmax()]

    assert "Longest" in (secure_fault(Method("longest", server=Longest())) or "")


def test_a_vehicle_clips_itself_where_the_server_cannot_see_it() -> None:
    method = get("fedavg@private", noise_multiplier=0.0, clip_norm=0.5)
    model = model_of(method)
    layout = reply_layout(method, model, SETTINGS, vehicles=2)
    values = reply_values(method, model, torch.full((model.layout.size,), 3.0), 7, {}, layout)
    assert np.linalg.norm(values["delta"]) == pytest.approx(0.5, rel=1e-12)
    assert values["weight"] == 1


def test_a_vehicle_weighs_at_most_as_much_as_there_is_room_for() -> None:
    method = get("fedavg")
    settings = SecureSettings(windows_limit=100)
    model = model_of(method)
    layout = reply_layout(method, model, settings, vehicles=2)
    delta = torch.full((model.layout.size,), 0.5)
    for windows, weight in ((99, 99.0), (101, 100.0), (4_000_000, 100.0)):
        values = reply_values(method, model, delta, windows, {}, layout)
        assert values["weight"] == weight and (values["delta"] == 0.5 * weight).all()


def test_a_diverged_vehicle_has_nothing_to_add() -> None:
    method = get("fedavg")
    model = model_of(method)
    layout = reply_layout(method, model, SETTINGS, vehicles=2)
    delta = torch.zeros(model.layout.size)
    delta[3] = torch.nan
    with pytest.raises(DataError, match="finite"):
        layout.encode(reply_values(method, model, delta, 5, {}, layout))


def test_half_words_are_within_their_bound() -> None:
    # |mean - exact| ≤ R·step/2 / Σ n, with limits that suit the fleet.
    method = get("fedavg")
    settings = SecureSettings(bits=32, windows_limit=1000, delta_limit=1.0)
    model = model_of(method)
    replies = replies_to(method, model, 0, WINDOWS)
    step = reply_layout(method, model, settings, vehicles=5).steps["delta"]
    exact = (replies.windows[:, None] * replies.deltas.double()).sum(0) / replies.windows.sum()
    error = (summed(method, model, replies, settings).deltas[0] - exact).abs().max()
    assert 0 < error <= 5 * step / 2 / sum(WINDOWS) * (1 + 1e-9)


class Watching(Method):
    """A method that keeps the replies it is given."""

    def update(self, state, weights, replies):
        self.__dict__["seen"] = replies
        return super().update(state, weights, replies)


@pytest.mark.parametrize("name", ["fo-ri-fedavg", "scaffold", "fednova", "feddyn", "fedel"])
def test_a_trained_round_with_a_vehicle_lost_is_the_round_of_the_others(name: str) -> None:
    method_here = get(name)
    method = Watching(method_here.name, method_here.local, method_here.server)
    training = Training(rounds=1, participation=1.0, batch=16, epochs=1, precision="float64")
    federation = Federation(random_fleet((70, 33, 128, 5)), training=training, device="cpu")
    state, _ = federation.start(method)
    federation.advance(method, state)
    replies = method.__dict__["seen"]
    model = method.adapted(federation.model)
    before = {key: table[0] for key, table in state.server.items()}
    remaining = selected(replies, torch.tensor([0, 1, 3]))
    _, expected = method_here.update(before, state.weights[0], remaining)
    # The largest vehicle has shared its keys and is never heard of again.
    mean = summed(method_here, model, replies, last={"car-002": "shares"})
    _, weights = method_here.update(before, state.weights[0], mean)
    assert weights == pytest.approx(expected, abs=1e-10)
    _, all_four = method_here.update(before, state.weights[0], replies)
    assert (all_four - expected).abs().max() > 1e-6
