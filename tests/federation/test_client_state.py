"""What vehicles remember, kept on disk: the same numbers, old states intact, little memory."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from fedwatt.errors import RunError
from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.federation.state import Paged, Pages, new_table
from fedwatt.methods import get
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

METHODS = ("scaffold", "moon", "feddyn", "scaffold+contrastive", "ditto", "fedrep")


def table(path: Path | None = None) -> Paged:
    made = new_table(torch.tensor([7.0, -7.0]), 2, 3, path)
    assert isinstance(made, Paged)
    return made


@pytest.fixture
def everything_on_disk(monkeypatch) -> None:
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)


def federation(**terms) -> Federation:
    return Federation(
        random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(rounds=4, participation=0.5, batch=16),
        availability=Availability(reply_loss=0.2),
        seeds=(1, 2),
        device="cpu",
        **terms,
    )


def test_small_tables_and_single_numbers_stay_in_memory(everything_on_disk, monkeypatch) -> None:
    assert isinstance(new_table(torch.tensor(1.0), 2, 3, None), torch.Tensor)
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 2 * 3 * 8)
    assert isinstance(new_table(torch.zeros(2), 2, 3, None), torch.Tensor)
    assert isinstance(new_table(torch.zeros(3), 2, 3, None), Paged)


def test_a_row_is_what_was_last_written(everything_on_disk) -> None:
    paged = table()
    paged[[1, 1], [0, 2]] = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    rows = paged[[1, 0, 1, 1], [2, 2, 1, 0]]
    assert rows.tolist() == [[2.0, -2.0], [7.0, -7.0], [7.0, -7.0], [1.0, -1.0]]
    paged[[1], [2]] = torch.tensor([[3.0, -3.0]])
    assert paged[[1, 1], [2, 0]].tolist() == [[3.0, -3.0], [1.0, -1.0]]


def test_a_clone_changes_nothing_of_the_table_it_came_from(everything_on_disk) -> None:
    before = table()
    before[[0], [1]] = torch.tensor([[1.0, 1.0]])
    after = before.clone()
    after[[0, 0], [1, 2]] = torch.tensor([[2.0, 2.0], [3.0, 3.0]])
    assert before[[0, 0], [1, 2]].tolist() == [[1.0, 1.0], [7.0, -7.0]]
    assert after[[0, 0], [1, 2]].tolist() == [[2.0, 2.0], [3.0, 3.0]]


def test_slots_that_nobody_refers_to_are_used_again(everything_on_disk) -> None:
    paged = table()
    for value in range(50):
        after = paged.clone()
        after[[0, 0], [0, 1]] = torch.full((2, 2), float(value))
        paged = after
    # Two vehicles, each with the row of this state and of the one before it.
    assert paged.pages.size == 4
    assert paged[[0, 0], [0, 1]].tolist() == [[49.0, 49.0]] * 2


def test_pinned_rows_outlive_the_state_they_belong_to(everything_on_disk, tmp_path) -> None:
    paged = table(tmp_path / "control.rows")
    paged[[0, 0], [0, 1]] = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    paged.pages.flush()
    paged.pin()
    stored = paged.tensors()
    for value in range(20):
        paged = paged.clone()
        paged[[0, 0], [0, 1]] = torch.full((2, 2), 100.0 + value)
    again = Paged.from_tensors(stored, tmp_path / "control.rows")
    assert again[[0, 0, 1], [0, 1, 0]].tolist() == [[1.0, 1.0], [2.0, 2.0], [7.0, -7.0]]
    # A continued table does not write over its own checkpoint either.
    later = again.clone()
    del again
    for value in range(20):
        later = later.clone()
        later[[0, 0], [0, 1]] = torch.full((2, 2), float(value))
    third = Paged.from_tensors(stored, tmp_path / "control.rows")
    assert third[[0, 0], [0, 1]].tolist() == [[1.0, 1.0], [2.0, 2.0]]


@pytest.mark.parametrize("name", METHODS)
def test_on_disk_or_not_is_the_same_training(name: str, monkeypatch) -> None:
    dense = federation().train(name).state
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)
    paged = federation().train(name).state
    assert paged.paged
    assert not dense.paged
    assert torch.equal(dense.weights, paged.weights)
    for table_name, own in dense.client_state.items():
        there = paged.client_state[table_name]
        for run in range(2):
            everybody = list(range(4))
            values = there[[run] * 4, everybody]
            assert torch.equal(values, own[run, everybody])


def test_a_state_from_before_can_be_advanced_again(everything_on_disk) -> None:
    fed = federation()
    method = get("scaffold")
    first, _ = fed.start(method)
    second, _ = fed.advance(method, first)
    third, _ = fed.advance(method, second)
    fourth, _ = fed.advance(method, third)
    again, _ = fed.advance(method, second)
    assert torch.equal(again.weights, third.weights)
    assert not torch.equal(fourth.weights, third.weights)


def test_a_state_is_read_back_from_its_tensors(everything_on_disk, tmp_path) -> None:
    fed = federation(scratch=tmp_path)
    method = get("moon")
    state, _ = fed.advance(method, fed.start(method)[0])
    copy = State.from_tensors(state.round, state.tensors(), tmp_path)
    assert copy.tensors().keys() == state.tensors().keys()
    for name, tensor in state.tensors().items():
        assert torch.equal(tensor, copy.tensors()[name])
    here, _ = fed.advance(method, state)
    there, _ = fed.advance(method, copy)
    assert torch.equal(here.weights, there.weights)


def test_damage_and_a_missing_file_are_one_sentence(everything_on_disk, tmp_path) -> None:
    path = tmp_path / "control.rows"
    paged = table(path)
    paged[[0], [0]] = torch.tensor([[1.0, 1.0]])
    stored = paged.tensors()
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    with pytest.raises(RunError, match=r"control.rows\) is damaged. Delete its checkpoint folder"):
        paged[[0], [0]]
    path.write_bytes(b"")
    with pytest.raises(RunError, match="is damaged"):
        paged[[0], [0]]
    path.unlink()
    with pytest.raises(RunError, match=r"Cannot open .*control.rows\): No such file"):
        Paged.from_tensors(stored, path)


def test_a_full_disk_is_one_sentence_and_frees_what_was_written() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    pages = Pages(8, Path("/dev/full"), keep=True)
    with pytest.raises(RunError, match=r"Cannot write .*No space left"):
        pages.write(torch.zeros(2))
    assert pages.free == [0]


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
                "rows": state.paged[0].pages.size if state.paged else 0}

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
    for found in (few, many):
        # Rows of those that took part in three rounds, and no others.
        assert 100 < found["rows"] <= 300
    # Besides its rows of 130 kB a round holds its stack of 100 models a few times over.
    assert many["grown_mb"] < dense_mb / 5
    # As many take part in both; twice leaves room for what is linear in vehicles but tiny.
    assert many["round_s"] < 2 * few["round_s"]


def test_rows_of_older_checkpoints_are_read(tmp_path) -> None:
    """They have an entry for every vehicle, -1 where there is no row."""
    pages = Pages(8, tmp_path / "old.rows")
    table = Paged(pages, torch.zeros(2), [{}], torch.device("cpu"))
    table[[0], [2]] = torch.tensor([[3.0, 4.0]])
    ((_, _, number, checksum),) = table.tensors()["rows"].tolist()
    old = {
        "slots": torch.tensor([[-1, -1, number]]),
        "checksums": torch.tensor([[0, 0, checksum]]),
        "initial": torch.zeros(2),
    }
    again = Paged.from_tensors(old, tmp_path / "old.rows")
    assert again[[0, 0], [1, 2]].tolist() == [[0.0, 0.0], [3.0, 4.0]]
