"""A fleet whose windows are on disk: the same numbers, little memory, old views intact."""

import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.models import MLP
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet, paged
from fedwatt.windows.paged import gather_clients
from fedwatt.windows.splits import SPLITS
from tests.federation.toys import random_fleet


def on_disk(fleet: Fleet) -> Fleet:
    clients, mapped = gather_clients(fleet.clients)
    return Fleet(clients, fleet.settings, fleet.source, mapped)


@pytest.fixture
def everything_on_disk(monkeypatch) -> None:
    monkeypatch.setattr(paged, "DENSE_BYTES", 0)


def federation(fleet: Fleet, **training) -> Federation:
    terms = {"rounds": 3, "participation": 0.5, "batch": 16} | training
    return Federation(
        fleet,
        MLP(4, 8, (6, 5)),
        training=Training(**terms),
        availability=Availability(reply_loss=0.2, p_leave=0.2, p_join=0.5),
        seeds=(1, 2),
        device="cpu",
    )


@pytest.mark.parametrize("method", ["fedavg", "fo-ri-fedavg", "scaffold"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_results_are_those_of_a_fleet_in_memory(everything_on_disk, method, precision) -> None:
    fleet = random_fleet(held_out=(2,))
    dense, files = (federation(f, precision=precision) for f in (fleet, on_disk(fleet)))
    assert files.fleet.mapped is not None
    one = dense.train(method)
    other = files.train(method)
    # Row for row and bit for bit; NaN is written alike.
    assert json.dumps(one.history.rounds) == json.dumps(other.history.rounds)
    assert json.dumps(one.history.clients) == json.dumps(other.history.clients)
    for name, tensor in one.state.tensors().items():
        assert torch.equal(tensor, other.state.tensors()[name]), name
    assert json.dumps(dense.vehicle_rows(one.state.weights)) == json.dumps(
        files.vehicle_rows(other.state.weights)
    )


def test_a_built_fleet_is_the_same_on_disk(monkeypatch) -> None:
    settings = DataSettings(stride=20, held_out=1)
    dense = synthetic_fleet(4, settings=settings, trips=5)
    assert dense.mapped is None
    # Large enough for two of the four vehicles: the first ones are moved when the third comes.
    size = sum(paged._bytes(client) for client in dense.clients[:2])
    monkeypatch.setattr(paged, "DENSE_BYTES", size)
    files = synthetic_fleet(4, settings=settings, trips=5)
    assert files.mapped is not None and files.mapped.holds(files.clients)
    assert files.data_hash() == dense.data_hash()
    assert files.split_hash() == dense.split_hash()
    for one, other in zip(dense.clients, files.clients, strict=True):
        assert one.held_out == other.held_out
        assert np.array_equal(one.series, other.series)
        for split in SPLITS:
            assert np.array_equal(one.ends[split], other.ends[split])
            assert np.array_equal(one.labels[split], other.labels[split])


def test_released_pages_are_read_again(everything_on_disk) -> None:
    fleet = random_fleet()
    files = on_disk(fleet)
    files.mapped.release()
    assert np.array_equal(files.clients[1].series, fleet.clients[1].series)
    files.mapped.release()
    assert np.array_equal(files.clients[1].series, fleet.clients[1].series)


def test_the_pool_is_a_view_of_the_files(everything_on_disk) -> None:
    files = on_disk(random_fleet())
    pool = federation(files).pool
    assert pool.series.data_ptr() == files.mapped.series.ctypes.data
    assert pool.train.starts.data_ptr() == files.mapped.starts["train"].ctypes.data


def test_a_client_put_in_the_place_of_another_counts(everything_on_disk) -> None:
    files = on_disk(random_fleet())
    labels = files.clients[1].labels
    other = replace(files.clients[1], labels=dict(labels) | {"train": labels["train"] + 1})
    changed = replace(files, clients=(files.clients[0], other, *files.clients[2:]))
    assert not changed.mapped.holds(changed.clients)
    begin, end = federation(changed).pool.train.offsets[1:3]
    pooled = federation(changed).pool.train.labels[begin:end]
    assert np.array_equal(pooled.numpy(), labels["train"] + 1)


def test_vehicles_out_of_order_are_refused_when_they_cannot_be_sorted(everything_on_disk) -> None:
    fleet = random_fleet()
    with pytest.raises(DataError, match="'car-000' comes after 'car-001'"):
        gather_clients([fleet.clients[1], fleet.clients[0]])


def test_a_full_disk_is_one_sentence(everything_on_disk, monkeypatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    full = {"TemporaryFile": lambda **terms: io.FileIO("/dev/full", "wb")}
    monkeypatch.setattr(paged, "tempfile", SimpleNamespace(gettempdir=lambda: "/full", **full))
    with pytest.raises(DataError, match=r"Could not write the fleet's windows .*No space left"):
        on_disk(random_fleet((70_000,)))


def test_vehicles_are_built_one_at_a_time(everything_on_disk, monkeypatch) -> None:
    # The next vehicle is asked for only once the last one is in the files.
    written = []
    add = paged._GrowingFiles.add

    def overheard(self, client) -> None:
        add(self, client)
        written.append(client.name)

    monkeypatch.setattr(paged._GrowingFiles, "add", overheard)

    def clients() -> Iterator:
        for number, client in enumerate(random_fleet().clients):
            assert len(written) == number
            yield client

    gather_clients(clients())
    assert len(written) == 4


def test_a_sample_of_vehicles_is_evaluated() -> None:
    fleet = random_fleet((20, 30, 40, 50, 60, 70), held_out=(1, 4))
    every = federation(fleet)
    some = federation(fleet, evaluate_vehicles=2)
    assert every.members.evaluated == [0, 1, 2, 3, 4, 5]
    assert len(some.members.evaluated) == 4 and {1, 4} < set(some.members.evaluated)
    weights = torch.stack([some.model.initial(np.random.default_rng(0))]).float()
    (whole,) = every.evaluate(weights)
    (part,) = some.evaluate(weights)
    assert part.test == [whole.test[k] for k in some.members.evaluated]
    assert part.validation == [whole.validation[k] for k in some.members.evaluated]
    # Training itself does not know who is looked at.
    one = every.train("fedavg")
    other = some.train("fedavg")
    assert torch.equal(one.state.weights, other.state.weights)
    assert one.history.clients == other.history.clients
    assert one.history.last("test_rmse") != other.history.last("test_rmse")


def test_the_sample_depends_on_names_alone() -> None:
    fleet = random_fleet((20,) * 12)
    three, four = ({fleet.clients[k].name for k in fleet.sample(count)} for count in (3, 4))
    assert len(three) == 3 and three < four
    turned = Fleet(fleet.clients[::-1], fleet.settings, fleet.source)
    assert three == {turned.clients[k].name for k in turned.sample(3)}
    assert fleet.sample(0) == fleet.sample(12) == list(range(12))


def test_a_negative_sample_is_refused() -> None:
    with pytest.raises(SettingError, match=r"evaluate_vehicles must be at least 0"):
        Training(evaluate_vehicles=-1)


LARGE = """
    import json, sys
    import numpy as np
    from dataclasses import replace
    from fedwatt.federation import Federation, Training
    from fedwatt.windows import Fleet, paged
    from fedwatt.windows.paged import gather_clients
    from fedwatt.methods import get
    from fedwatt.models import MLP
    from tests.federation.toys import random_fleet

    paged.DENSE_BYTES = 0

    def memory_mb():
        lines = open("/proc/self/status").read().splitlines()
        rows = dict(line.split(":") for line in lines if line.startswith(("RssAnon", "RssFile")))
        return {name: int(value.split()[0]) / 1024 for name, value in rows.items()}

    def clients(vehicles):
        # 200 kB of series each.
        (one,) = random_fleet((6000,)).clients
        for k in range(vehicles):
            yield replace(one, name=f"car-{k:05d}")

    vehicles = int(sys.argv[1])
    made, mapped = gather_clients(clients(vehicles))
    fleet = Fleet(made, random_fleet((16,)).settings, "toy", mapped)
    training = Training(rounds=9, participation=30 / vehicles, steps=4, evaluate_vehicles=5)
    federation = Federation(fleet, MLP(4, 8, (6, 5)), training=training, device="cpu")
    method = get("fedavg")
    state, _ = federation.start(method)
    before = memory_mb()
    for _ in range(8):
        state, _ = federation.advance(method, state)
    after = memory_mb()
    size = sum(file.size() for file in mapped.files) / 2**20
    print(json.dumps({"size": size} | {name: after[name] - before[name] for name in after}))
"""


def large(vehicles: int) -> dict:
    code = [sys.executable, "-c", textwrap.dedent(LARGE), str(vehicles)]
    here = Path(__file__).parents[2]
    out = subprocess.run(code, capture_output=True, text=True, check=True, cwd=here)
    return json.loads(out.stdout)


def test_memory_of_a_round_does_not_grow_with_the_fleet() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory of a process is read from /proc")
    many = large(2000)
    assert many["size"] > 500
    # Eight rounds read the 0.3 MB of 240 vehicles; a copy of the fleet would be 600 MB.
    assert many["RssAnon"] < 60
    assert many["RssFile"] < 20
