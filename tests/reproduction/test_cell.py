"""Cells: what tells them apart, what they take from others, how they are trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedwatt.methods import get
from fedwatt.tuning.tune import ranges_of
from reproduction.catalogue import STUDIES
from reproduction.cell import METHODS, Cell, key_of, run_config
from reproduction.conditions import BASE, conditions_of
from reproduction.data import Sources
from reproduction.lab import all_cells
from reproduction.record import read_records, scale_of_records
from reproduction.scale import SCALES, scale_of
from reproduction.study import setting_for
from reproduction.tuning import latin, mean_pull, prerequisites, score, search, settled
from tests.reproduction.records import made
from tests.reproduction.small import TINY, cells_of_a_run


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_cell_of_every_study_can_be_configured(scale) -> None:
    setting = setting_for(scale, Sources())
    cells = all_cells([c for s in STUDIES.values() for c in s.cells(setting)], scale)
    assert len(cells) > 300
    keys = {key_of(cell, scale) for cell in cells if not cell.follow}
    assert len(keys) == sum(not cell.follow for cell in cells)
    for cell in cells:
        run_config(replace(cell, follow=""), scale)


def test_a_default_that_is_written_out_is_the_same_cell() -> None:
    plain = Cell(dataset="synthetic", method="fo-ri-fedavg")
    scale = SCALES["paper"]
    assert key_of(plain.with_settings({"alpha": 0.8, "learning_rate": 0.05}), scale) == key_of(
        plain, scale
    )
    for other in (
        plain.with_settings({"alpha": 0.7}),
        replace(plain, p_leave=0.1, p_join=0.1),
        replace(plain, vehicles=50),
        replace(plain, partition="severe"),
        replace(plain, split=1),
        replace(plain, stride=1),
        replace(plain, epochs=2),
        replace(plain, causal=True),
        replace(plain, slow=True),
        replace(plain, noisy=0.3),
    ):
        assert key_of(other, scale) != key_of(plain, scale)
    assert key_of(plain, SCALES["smoke"]) != key_of(plain, scale)


def test_tuning_gives_every_method_as_many_trials_at_the_same_rates() -> None:
    scale = SCALES["paper"]
    rates = set()
    for method in METHODS:
        match = search(Cell(dataset="ved", method=method), scale)
        assert len(match) == scale.trials >= 30
        assert match[0].settings == () and {cell.rounds for cell in match} == {scale.rounds}
        assert all(len(cell.seeds) == 5 and not {*cell.seeds} & {*scale.seeds} for cell in match)
        rates.add(tuple(dict(cell.settings)["learning_rate"] for cell in match[1:]))
    (shared,) = rates
    assert min(shared) < 2e-4 and max(shared) > 0.2
    ranges = ranges_of(get("fo-ri-fedavg"))
    for values in latin(ranges, 5):
        assert all(value in ranges[name] for name, value in values.items())


def test_a_method_that_contains_others_sees_their_points_and_has_their_trials() -> None:
    scale = SCALES["paper"]
    ours, fo, ri = (
        [dict(cell.settings) for cell in search(Cell(dataset="ved", method=method), scale)[1:]]
        for method in ("fo-ri-fedavg", "fo-fedavg", "ri-fedavg")
    )
    for our_errors, first, other in zip(ours, fo, ri, strict=True):
        assert our_errors == first | other  # the same rate, α, λ and τ_I
    cell = Cell(dataset="ved", method="fo-ri-fedavg", follow="tuned")
    trials = prerequisites(cell, scale)
    assert len(trials) == 4 * scale.trials
    for method, off in (("fo-fedavg", {"lam": 0.0}), ("fedavg", {"lam": 0.0, "alpha": 1.0})):
        records = [made(trial, 40.0 if trial.method == method else 60.0) for trial in trials]
        assert settled(cell, records).settings == tuple(sorted(off.items()))
    best = [made(t, 40.0 if dict(t.settings).get("alpha") else 60.0) for t in trials]
    assert "lam" in dict(settled(cell, best).settings)  # of two equals its own comes first


def test_the_protocol_as_printed_has_the_rates_of_its_shorter_runs() -> None:
    setting = setting_for(SCALES["paper"], Sources(), ["synthetic"])
    brief, complete = conditions_of("stride", setting)
    assert complete.cells[BASE].rounds == 300 and not complete.cells[BASE].seeds
    for name in (BASE, "FO-RI-FedAvg, tuned"):
        short, long = (prerequisites(c.cells[name], setting.scale) for c in (brief, complete))
        assert short == long


def test_a_rate_is_chosen_under_the_conditions_it_is_used_in() -> None:
    scale = SCALES["paper"]
    severe = Cell(dataset="ved", method="ri-fedavg", partition="severe", follow="own rate:fedavg")
    trials = prerequisites(replace(severe, settings=(("lam", 1.0),)), scale)
    assert {t.method for t in trials} == {"fedavg"} and {t.partition for t in trials} == {"severe"}
    records = [made(t, 40.0 if t.settings == (("learning_rate", 0.005),) else 60.0) for t in trials]
    chosen = settled(replace(severe, settings=(("lam", 1.0),)), records)
    assert (
        chosen.settings == (("lam", 1.0), ("learning_rate", 0.005)) and chosen.method == "ri-fedavg"
    )


def test_controls_take_their_settings_from_what_they_match(lab) -> None:
    fo, learning_rate, pull, ri, *_ = cells_of_a_run()
    length = lab.get(fo).facts["step_scale"]["length"]
    assert dict(lab.get(learning_rate).cell.settings)["learning_rate"] == float(
        f"{0.05 * length:.4g}"
    )
    assert dict(lab.get(pull).cell.settings)["mu"] == float(f"{mean_pull(lab.get(ri)):.4g}")


def test_the_best_trial_is_the_one_with_the_lowest_validation_error(lab) -> None:
    tuned = cells_of_a_run()[4]
    trials = [lab.get(cell) for cell in prerequisites(tuned, TINY)]
    best = trials[int(np.argmin([score(trial) for trial in trials]))]
    assert settled(tuned, trials).settings == best.cell.settings


@pytest.mark.parametrize(
    ("p_leave", "p_join", "initially"),
    [
        (0.0, 0.0, 1.0),
        (
            0.05,
            0.05,
            0.5,
        ),  # symmetric churn starts at its steady state, p_join / (p_join + p_leave)
        (0.2, 0.2, 0.5),
        (0.2, 0.02, 1.0),  # net loss has everything to lose
        (0.02, 0.2, 0.5),  # net gain has room to grow
    ],
)
def test_churn_starts_where_the_study_says(p_leave: float, p_join: float, initially: float) -> None:
    cell = Cell(dataset="synthetic", method="fedavg", p_leave=p_leave, p_join=p_join)
    availability = run_config(cell, SCALES["paper"]).availability
    assert (availability.p_leave, availability.p_join) == (p_leave, p_join)
    assert availability.initially == initially


def test_committed_records_are_found_by_what_they_were_trained_with() -> None:
    # A setting that came later must not hide them.
    folder = Path(__file__).parents[2] / "results" / "reproduction"
    scale = scale_of(scale_of_records(folder))
    records = read_records(folder)
    assert records
    assert [key for key, record in records.items() if key_of(record.cell, scale) != key] == []
