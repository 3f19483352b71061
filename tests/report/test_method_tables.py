"""The table of signals, from clients made by hand."""

from dataclasses import replace

import numpy as np

from fedwatt.report.load import load_run
from fedwatt.report.method_tables import signals_table


def with_signals(run, alignment):
    """The run with the `alignment` of its first vehicle's turns in order, and 0.5 for others."""
    clients = dict(run.clients)
    names = clients["vehicle"]
    clients["transfer"] = np.where(names == "car-01", 0.25, np.nan)
    own = np.full(len(names), 0.5)
    first = (names == "car-01") & (clients["method"] == "fedavg") & (clients["seed"] == 1)
    places = np.flatnonzero(first & clients["replied"].astype(bool))
    own[places] = 0.5
    own[places[: len(alignment)]] = alignment
    return replace(run, clients=clients | {"alignment": own})


def test_a_run_without_signals_has_no_table(run_folder) -> None:
    assert signals_table(load_run(run_folder)).rows == ()


def test_means_over_turns(run_folder) -> None:
    rows = signals_table(with_signals(load_run(run_folder), [-0.4, -0.5, -0.9])).rows
    first = next(row for row in rows if row[:2] == ("FedAvg", "car-01"))
    assert (first[2], first[5]) == (0.25, "–")
    second = next(row for row in rows if row[:2] == ("FedAvg", "car-02"))
    assert (second[2], second[3]) == ("–", 0.5)


def test_flags_efficiency_and_agreement_are_told(run_folder) -> None:
    run = with_signals(load_run(run_folder), [0.5])
    own = run.clients["vehicle"] == "car-01"
    clients = run.clients | {"efficiency": np.where(own, 0.25, np.nan), "flagged": own}
    rounds = run.rounds | {"agreement": np.where(run.rounds["round"] > 0, 0.5, np.nan)}
    table = signals_table(replace(run, clients=clients, rounds=rounds))
    first = next(row for row in table.rows if row[:2] == ("FedAvg", "car-01"))
    turns = int(np.sum(own & (clients["method"] == "fedavg") & (clients["replied"] != 0)))
    assert (first[4], first[6]) == (0.25, f"{turns} of {turns}")
    assert "mean over rounds: FedAvg 0.50" in table.note
