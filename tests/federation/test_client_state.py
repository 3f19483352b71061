"""Sparse client states: the same numbers as dense ones, old states intact, little memory."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.federation.state import SparseTable, new_table
from fedwatt.methods import get
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

METHODS = ("scaffold", "moon", "feddyn", "scaffold+contrastive", "ditto", "fedrep")


def table() -> SparseTable:
    made = new_table(torch.tensor([7.0, -7.0]), 2, 3)
    assert isinstance(made, SparseTable)
    return made


@pytest.fixture
def all_tables_sparse(monkeypatch) -> None:
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)


def federation() -> Federation:
    return Federation(
        random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(rounds=4, participation=0.5, batch=16),
        availability=Availability(reply_loss=0.2),
        seeds=(1, 2),
        device="cpu",
    )


def test_small_tables_and_single_numbers_are_dense(all_tables_sparse, monkeypatch) -> None:
    assert isinstance(new_table(torch.tensor(1.0), 2, 3), torch.Tensor)
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 2 * 3 * 8)
    assert isinstance(new_table(torch.zeros(2), 2, 3), torch.Tensor)
    assert isinstance(new_table(torch.zeros(3), 2, 3), SparseTable)


def test_a_row_is_what_was_last_written(all_tables_sparse) -> None:
    sparse = table()
    sparse[[1, 1], [0, 2]] = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    rows = sparse[[1, 0, 1, 1], [2, 2, 1, 0]]
    assert rows.tolist() == [[2.0, -2.0], [7.0, -7.0], [7.0, -7.0], [1.0, -1.0]]
    sparse[[1], [2]] = torch.tensor([[3.0, -3.0]])
    assert sparse[[1, 1], [2, 0]].tolist() == [[3.0, -3.0], [1.0, -1.0]]


def test_a_clone_changes_nothing_of_the_table_it_came_from(all_tables_sparse) -> None:
    before = table()
    before[[0], [1]] = torch.tensor([[1.0, 1.0]])
    after = before.clone()
    after[[0, 0], [1, 2]] = torch.tensor([[2.0, 2.0], [3.0, 3.0]])
    assert before[[0, 0], [1, 2]].tolist() == [[1.0, 1.0], [7.0, -7.0]]
    assert after[[0, 0], [1, 2]].tolist() == [[2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("name", METHODS)
def test_sparse_and_dense_tables_give_the_same_training(name: str, monkeypatch) -> None:
    dense = federation().train(name).state
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)
    sparse = federation().train(name).state
    kinds = {type(table) for table in sparse.client_state.values()}
    assert SparseTable in kinds
    assert torch.equal(dense.weights, sparse.weights)
    for table_name, dense_table in dense.client_state.items():
        sparse_table = sparse.client_state[table_name]
        for run in range(2):
            everybody = list(range(4))
            values = sparse_table[[run] * 4, everybody]
            assert torch.equal(values, dense_table[run, everybody])


def test_a_state_from_before_can_be_advanced_again(all_tables_sparse) -> None:
    fed = federation()
    method = get("scaffold")
    first, _ = fed.start(method)
    second, _ = fed.advance(method, first)
    third, _ = fed.advance(method, second)
    fourth, _ = fed.advance(method, third)
    again, _ = fed.advance(method, second)
    assert torch.equal(again.weights, third.weights)
    assert not torch.equal(fourth.weights, third.weights)


def test_a_state_is_read_back_from_its_tensors(all_tables_sparse) -> None:
    fed = federation()
    method = get("moon")
    state, _ = fed.advance(method, fed.start(method)[0])
    copy = State.from_tensors(state.round, state.tensors())
    assert copy.tensors().keys() == state.tensors().keys()
    for name, tensor in state.tensors().items():
        assert torch.equal(tensor, copy.tensors()[name])
    here, _ = fed.advance(method, state)
    present, _ = fed.advance(method, copy)
    assert torch.equal(here.weights, present.weights)


LARGE = """
    import json, resource, sys, time
    from dataclasses import replace
    from fedwatt.federation import Federation, Training
    from fedwatt.windows import Fleet
    from fedwatt.methods import get
    from fedwatt.models import MLP
    from tests.federation.toys import random_fleet

    def peak_mb():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def rounds(vehicles):
        (one,) = random_fleet((16,)).clients
        clients = tuple(replace(one, name=f"car-{k:05d}") for k in range(vehicles))
        training = Training(
            rounds=4, participation=100 / vehicles, steps=1, batch=16, evaluate_every=10
        )
        federation = Federation(
            Fleet(clients, random_fleet((16,)).settings, "toy"),
            MLP(4, 8, (256, 96)),
            training=training, device="cpu",
        )
        method = get("scaffold")
        federation.pool
        before, seconds = peak_mb(), []
        state, _ = federation.start(method)
        for _ in range(3):
            begun = time.process_time()
            state, record = federation.advance(method, state)
            seconds.append(time.process_time() - begun)
            assert record.rounds[0]["replies"] == 100
        weights = state.weights.shape[1]
        return {"grown_mb": peak_mb() - before, "round_s": min(seconds), "weights": weights,
                "rows": len(state.client_state["control"].rows[0])}

    print(json.dumps(rounds(int(sys.argv[1]))))
"""


def large(vehicles: int) -> dict:
    # A process for each: the peak of one must not hide behind that of another.
    code = [sys.executable, "-c", textwrap.dedent(LARGE), str(vehicles)]
    here = Path(__file__).parents[2]
    out = subprocess.run(code, capture_output=True, text=True, check=True, cwd=here)
    return json.loads(out.stdout)


def test_ten_thousand_vehicles_do_not_need_ten_thousand_models_in_memory() -> None:
    few = large(2500)
    many = large(10_000)
    dense_mb = 10_000 * many["weights"] * 4 / 2**20
    assert dense_mb > 1200
    for result in (few, many):
        # Rows of those that took part in three rounds, and no others.
        assert 100 < result["rows"] <= 300
    # Besides its rows of 130 kB a round holds its stack of 100 models a few times over.
    assert many["grown_mb"] < dense_mb / 5
    # As many take part in both; twice leaves room for what is linear in vehicles but tiny.
    assert many["round_s"] < 2 * few["round_s"]
