"""FedEL's parts by hand: the model with exits, what tensors cost, what a vehicle chooses."""

from itertools import compress

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.elastic import Elastic, ElasticServer
from fedwatt.methods.elastic_model import ElasticModel, select, training_work, whole_work
from fedwatt.methods.rule import Batch
from fedwatt.methods.server import Replies
from fedwatt.models import GRU, LSTM, MLP, Model
from tests.federation.toys import a_start

# The default network on windows of a minute with eight features.
DEFAULT = MLP(60, 8, (64, 32))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("model", [MLP(3, 2, (5, 4, 3)), GRU(2, 4), LSTM(2, 4)], ids=str)
def test_the_first_weights_of_an_elastic_model_are_the_model(model: Model) -> None:
    elastic = ElasticModel(model)
    weights = elastic.initial(np.random.default_rng(1))
    size = model.layout.size
    windows = draw(6, 3, 2)
    assert torch.equal(weights[:size], model.initial(np.random.default_rng(1)))
    expected = model.predict(weights[:size], windows)
    assert torch.equal(elastic.predict(weights, windows), expected)
    parts = elastic.layout.split(weights)
    assert torch.equal(elastic.leave(len(elastic.blocks) - 1, parts, windows), expected)
    line = elastic.along(weights, torch.ones_like(weights), torch.zeros(1).double(), windows)
    torch.testing.assert_close(line[0], expected, rtol=0, atol=1e-12)


def test_an_early_exit_reads_the_layer_before_it() -> None:
    elastic = ElasticModel(MLP(3, 2, (5, 4, 3)))
    assert list(elastic.layout.shapes)[8:] == [
        "exit1.weight", "exit1.bias", "exit2.weight", "exit2.bias",
    ]  # fmt: skip
    weights = elastic.initial(np.random.default_rng(1))
    parts = elastic.layout.split(weights)
    windows = draw(6, 3, 2)
    x = torch.relu(windows.flatten(1) @ parts["hidden1.weight"] + parts["hidden1.bias"])
    first = (x @ parts["exit1.weight"] + parts["exit1.bias"]).flatten()
    x = torch.relu(x @ parts["hidden2.weight"] + parts["hidden2.bias"])
    second = (x @ parts["exit2.weight"] + parts["exit2.bias"]).flatten()
    torch.testing.assert_close(elastic.leave(0, parts, windows), first, rtol=0, atol=1e-12)
    torch.testing.assert_close(elastic.leave(1, parts, windows), second, rtol=0, atol=1e-12)


def test_selecting_the_second_and_fourth_of_five_costs_what_the_paper_says() -> None:
    # tg5 + tw4 + tg4 + tg3 + tw2 = 16 + 5 + 8 + 4 + 3 = 36, and the exit passes for nothing.
    apply = [100, 3, 100, 5, 100]
    through = [1, 2, 4, 8, 16, 0]
    assert select([1.0] * 5, apply, through, 36) == [False, True, False, True, False]
    # One less: the second alone costs 31, the fourth alone 21; equal worth, so the deeper.
    assert select([1.0] * 5, apply, through, 35) == [False, False, False, True, False]


def test_work_of_the_default_network_by_hand() -> None:
    model = ElasticModel(DEFAULT)
    first = 2 * 480 * 64
    second = 2 * 64 * 32
    out = 2 * 32
    biases = 64 + 32 + 1
    # Forward and own gradient everywhere, passing on everywhere but at the first matrix.
    assert whole_work(model, 60) == 2 * (first + second + out) + biases + second + out
    # Leaving after the first layer and training nothing but its exit.
    assert training_work(model, 60, 0, ()) == first + 2 * 64 + 2 * 64 + 1
    # Of a GRU the cell runs every second, the output once.
    cell = 60 * (2 * 8 * 96 + 2 * 32 * 96)
    gru = 2 * cell + 2 * 60 * 96 + 60 * 2 * 32 * 96 + 3 * 2 * 32 + 1
    assert whole_work(ElasticModel(GRU(8, 32)), 60) == gru


def begin(rule: Elastic, model: Model, speeds: list[float], windows: Tensor, labels: Tensor):
    """Return the choices of vehicles of these speeds in two rounds from the same weights."""
    elastic = ElasticModel(model)
    anchor = elastic.initial(np.random.default_rng(0)).expand(len(speeds), -1)
    start = a_start(
        anchor,
        elastic,
        speed=torch.tensor(speeds).double(),
        broadcast={"tensor_changes": torch.zeros(len(speeds), len(elastic.layout.shapes)).double()},
        probe_batch=lambda row, size, purpose: Batch(windows, labels),
        learning_rate=0.01,
    )
    client_state = {
        n: v.expand(len(speeds), *v.shape) for n, v in rule.client_state(elastic).items()
    }
    names = list(elastic.layout.shapes)
    rounds = []
    for _ in range(2):
        client_state, plan = rule.begin(client_state, start)
        chosen = [set(compress(names, on)) for on in plan["trained"].tolist()]
        rounds.append((client_state["window"].tolist(), chosen, plan["runtime"].tolist()))
        assert plan["mask"].sum(dim=1).tolist() == [
            sum(torch.tensor(elastic.layout.shapes[n]).prod().item() for n in chosen_names)
            for chosen_names in chosen
        ]
    return rounds


def test_on_the_default_network_slow_computers_never_train_the_first_matrix() -> None:
    windows = draw(32, 60, 8)
    labels = draw(32, seed=1)
    first, second = begin(Elastic(), DEFAULT, [1.0, 0.5, 0.25], windows, labels)
    everything = set(DEFAULT.layout.shapes)
    # The fastest trains all of it, exactly within its budget, and starts anew each time.
    for window, chosen, runtime in (first, second):
        assert (window[0], chosen[0], runtime[0]) == ([0, 1], everything, 1.0)
    # Half as fast: forward and gradient of the first matrix alone would take two budgets.
    window, chosen, runtime = first
    assert (window[1], chosen[1]) == ([0, 0], {"hidden1.bias", "exit1.weight", "exit1.bias"})
    assert runtime[1] <= 1
    window, chosen, runtime = second
    assert window[1] == [0, 1]  # a bias was trained in the first block, so it stays
    # Of 67,728 operations the forward pass and the output take 65,665: too few are left for
    # the second matrix (4,096), or for passing the gradient through it.
    assert chosen[1] == {"hidden2.bias", "output.weight", "output.bias"}
    assert runtime[1] <= 1
    # A quarter as fast: the forward pass overruns; the exit is trained all the same, and it shows.
    window, chosen, runtime = first
    assert (window[2], chosen[2]) == ([0, 0], {"exit1.weight", "exit1.bias"})
    forward = 4 * (2 * 480 * 64) / whole_work(ElasticModel(DEFAULT), 60)
    assert runtime[2] == pytest.approx(forward, rel=0.01)
    assert runtime[2] > 1
    assert second[0][2] == [0, 1]  # nothing was trained: the window's first block is the old front


def test_a_given_budget_counts_steps_of_a_computer_of_speed_one() -> None:
    windows = draw(32, 60, 8)
    labels = draw(32, seed=1)
    rule = Elastic(budget=4.0)
    (first, _) = begin(rule, DEFAULT, [1.0, 0.25, 0.2], windows, labels)
    assert first[1][0] == first[1][1] == set(DEFAULT.layout.shapes)
    assert first[2][:2] == [0.25, 1.0]
    assert first[1][2] != first[1][0]


def test_a_vehicle_with_broken_data_still_chooses() -> None:
    windows = draw(8, 60, 8)
    labels = torch.full((8,), torch.nan).double()
    (first, _) = begin(Elastic(), DEFAULT, [1.0, 0.5], windows, labels)
    assert first[1][0] == set(DEFAULT.layout.shapes)


def test_global_importance_decides_where_local_importance_is_silent() -> None:
    # β = 0: only what the last round changed counts; without a last round, the vehicle itself.
    model = ElasticModel(MLP(4, 2, (6, 6, 6)))
    names = list(model.layout.shapes)
    chosen = []
    for moved in ("hidden1.bias", "hidden2.bias"):
        changes = torch.tensor([[float(name == moved) for name in names]], dtype=torch.float64)
        start = a_start(
            model.initial(np.random.default_rng(0))[None],
            model,
            broadcast={"tensor_changes": changes},
            probe_batch=lambda row, size, purpose: Batch(draw(16, 4, 2), draw(16, seed=1)),
        )
        batch = start.probe_batch(0, 16, "importance batch")
        candidates = [name for block in model.blocks for name in block]
        values = Elastic(beta=0.0)._importance(start, 0, batch, 2, candidates)
        chosen.append(candidates[int(np.argmax(values))])
        mixed = Elastic(beta=0.6)._importance(start, 0, batch, 2, candidates)
        assert max(mixed) <= 1
        assert mixed[candidates.index(moved)] >= 0.4
    assert chosen == ["hidden1.bias", "hidden2.bias"]
    start = a_start(
        model.initial(np.random.default_rng(0))[None],
        model,
        broadcast={"tensor_changes": torch.zeros(1, len(names)).double()},
    )
    assert max(Elastic(beta=0.0)._importance(start, 0, batch, 2, candidates)) == 1.0


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("windows", [0.5 + (1 * 1 - 3 * 2) / 4, 0.5 - 2.0, 0.5]), ("uniform", [0.0, -1.5, 0.5])],
)
def test_each_tensor_is_averaged_over_the_vehicles_that_trained_it(
    weighting: str, expected: list[float]
) -> None:
    # Three tensors of one number; n = 1 and 3. Both trained the first, the second one the second.
    server = ElasticServer(weighting=weighting)
    state = {"changes": torch.zeros(3).double(), "sizes": torch.tensor([1, 1, 1])}
    replies = Replies(
        torch.tensor([[1.0, 0.0, 0.0], [-2.0, -2.0, 0.0]]).double(),
        torch.tensor([1.0, 3.0]).double(),
        2,
        4.0,
        np.random.default_rng(0),
        {"trained": torch.tensor([[True, False, False], [True, True, False]])},
    )
    state, weights = server.update(state, torch.full((3,), 0.5).double(), replies)
    assert weights.tolist() == pytest.approx(expected)
    assert state["changes"].tolist() == pytest.approx([(w - 0.5) ** 2 for w in expected])
    assert server.broadcast(state)["tensor_changes"] is state["changes"]


@pytest.mark.parametrize("wrong", [{"beta": 1.2}, {"budget": -1.0}, {"importance_batch": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="must be"):
        Elastic(**wrong)
