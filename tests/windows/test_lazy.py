import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.telemetry.store import StoredVehicles, load_fleet, write_fleet
from fedwatt.windows import DataSettings, lazy
from fedwatt.windows.client import Client, held_out_vehicles
from fedwatt.windows.lazy import Workers

SETTINGS = DataSettings()


def same(one: Client, other: Client) -> bool:
    return (
        one.name == other.name
        and np.array_equal(one.series, other.series)
        and all(np.array_equal(one.labels[s], other.labels[s]) for s in one.labels)
        and all(np.array_equal(one.ends[s], other.ends[s]) for s in one.ends)
        and one.held_out == other.held_out
    )


def test_vehicles_on_demand_are_those_made_ahead(tmp_path):
    settings = replace(SETTINGS, held_out=1)
    ahead = synthetic_fleet(4, 3, settings, trips=4)
    later = TownVehicles(4, 3, 4).lazy_fleet(settings)
    assert later.names == ahead.names and (later.held_out == ahead.held_out).all()
    assert all(same(later.clients[k], ahead.clients[k]) for k in (3, 0, 2, 1))
    write_fleet(tmp_path / "fleet", synthetic_vehicles(3, 3, trips=4), "test")
    stored = StoredVehicles(str(tmp_path / "fleet")).lazy_fleet()
    read = load_fleet(tmp_path / "fleet")
    assert all(same(stored.clients[k], read.clients[k]) for k in range(3))
    assert StoredVehicles(str(tmp_path / "fleet"), 2).count == 2


def test_a_million_vehicles_open_without_being_made():
    fleet = TownVehicles(1_000_000, 0, 6).lazy_fleet()
    assert len(fleet.clients) == 1_000_000 and fleet.name(999_999) == "car-1000000"
    assert not fleet.clients.here
    last = fleet.clients[-1]
    assert last.name == "car-1000000" and len(last.ends["train"]) > 1000
    fleet.let_go()
    assert not fleet.clients.here


def test_what_nobody_can_have_of_all_is_refused():
    fleet = TownVehicles(50_000, 0, 6).lazy_fleet()
    with pytest.raises(SettingError, match="all 50,000 vehicles, which are made only when"):
        list(fleet.clients)
    with pytest.raises(SettingError, match="need climb"):
        TownVehicles(50_000, 0, 6).lazy_fleet(DataSettings(features="base, elevation"))
    with pytest.raises(DataError, match="leaves none of the 5 vehicles"):
        TownVehicles(5, 0, 6).lazy_fleet(replace(SETTINGS, held_out=5))
    with pytest.raises(IndexError):
        fleet.clients[50_000]
    with pytest.raises(SettingError, match="0 vehicles"):
        TownVehicles(0, 0, 40).lazy_fleet()


def test_held_out_vehicles_are_those_of_a_fleet_made_ahead():
    fleet = TownVehicles(300, 0, 6).lazy_fleet(replace(SETTINGS, held_out=7, split_seed=2))
    names = {fleet.name(int(k)) for k in np.flatnonzero(fleet.held_out)}
    assert names == held_out_vehicles(fleet.names, 7, 2)


def test_figures_of_the_fleet_are_reckoned_from_the_sample(monkeypatch):
    monkeypatch.setattr(lazy, "SAMPLE", 8)
    fleet = TownVehicles(1000, 0, 3).lazy_fleet()
    windows = [len(client.ends["train"]) for client in fleet.at_hand]
    assert len(windows) == 8
    assert fleet.windows("train") == round(1000 * sum(windows) / 8)
    assert fleet.data_hash() == TownVehicles(1000, 0, 3).lazy_fleet().data_hash()
    assert fleet.data_hash() != TownVehicles(1001, 0, 3).lazy_fleet().data_hash()
    assert fleet.data_hash() != TownVehicles(1000, 1, 3).lazy_fleet().data_hash()


def test_only_vehicles_that_a_configuration_can_make_have_an_origin():
    cars = TownVehicles(3, 7, 4)
    buses = TownVehicles(3, 7, 4, "bus")
    assert cars.lazy_fleet().origin == {
        "data": "synthetic", "vehicles": 3, "seed": 7, "trips": 4, "made": "on-demand",
    }  # fmt: skip
    assert buses.lazy_fleet().origin == {}


def test_processes_make_what_this_one_makes():
    maker = TownVehicles(100, 0, 3)
    places = list(range(0, 60))
    workers = Workers(2)
    made, here = (w.make(maker, SETTINGS, places) for w in (workers, Workers(1)))
    assert all(map(same, made, here)) and len(made) == 60
    with pytest.raises(DataError, match="training, validation and test need one each"):
        workers.make(TownVehicles(60, 0, 2), SETTINGS, places)
    assert len(workers.make(maker, SETTINGS, places)) == 60  # an error is an answer
    os.kill(workers.processes[0].pid, signal.SIGKILL)
    workers.processes[0].wait()
    with pytest.raises(RunError, match="has ended early"):
        workers.make(maker, SETTINGS, places)


def test_a_fleet_travels_as_its_recipe():
    import pickle

    fleet = TownVehicles(10**6, 0, 3).lazy_fleet(SETTINGS)
    fleet.fetch([5, 6])
    sent = pickle.dumps(fleet)
    assert len(sent) < 1_100_000  # a byte a vehicle: whether it is held out
    assert same(pickle.loads(sent).clients[5], fleet.clients[5])
