"""Personalisation models: chosen on the vehicle's own validation trips, never worse there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.evaluation import Personalisation, PersonalisedModel, personalise
from fedwatt.evaluation.finetune import _trained
from fedwatt.federation import Federation, Training
from fedwatt.federation.evaluate import predict
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows.client import DataSettings

SETTINGS = Personalisation(enabled=True, rates=(0.01, 0.03), steps=(5, 20), batch=32)


@pytest.fixture(scope="module")
def federation() -> Federation:
    data = DataSettings(window=20, stride=10, held_out=1)
    fleet = synthetic_fleet(vehicles=4, settings=data, trips=6)
    training = Training(rounds=2, participation=1.0, precision="float64")
    return Federation(fleet, training=training, seeds=(1, 2), device="cpu")


@pytest.fixture(scope="module")
def trained(federation):
    return federation.train("fedavg").state.weights


def test_a_personal_model_validates_better_or_is_the_global_one(federation, trained):
    models: list[PersonalisedModel] = []
    result = personalise(federation, trained, SETTINGS, keep=models.append)
    pool = federation.pool
    assert len(models) == 8 and any(model.steps > 0 for model in models)
    for model in models:
        where = slice(pool.test.offsets[model.vehicle], pool.test.offsets[model.vehicle + 1])
        windows = pool.test.of([model.vehicle])
        same = predict(federation.model, trained[model.run, None], pool, windows)[0]
        remaining = model.steps == 0
        assert (model.learning_rate == 0) == remaining
        assert np.allclose(result.test[model.run, where], same, atol=1e-12) == remaining


def test_the_stack_takes_the_steps_a_vehicle_would_take_alone(federation, trained):
    together = trained[0].expand(4, -1).contiguous()
    stacked = dict(_trained(federation, together, 0, range(4), 0.03, SETTINGS))
    for vehicle in range(4):
        first = trained[0][None].contiguous()
        alone = dict(_trained(federation, first, 0, [vehicle], 0.03, SETTINGS))
        # Same steps in the same order; float64 sums may differ in their last bits.
        for steps in (5, 20):
            assert torch.allclose(stacked[steps][vehicle], alone[steps][0], atol=1e-10)


def test_ruinous_rates_leave_the_global_model(federation, trained):
    models: list[PersonalisedModel] = []
    ruinous = replace(SETTINGS, rates=(1e6,))
    result = personalise(federation, trained, ruinous, keep=models.append)
    assert [model.steps for model in models] == [0] * 8
    remaining = federation.prediction_rows(result.test)
    assert [row["rmse"] for row in remaining] == pytest.approx(
        [row["rmse"] for row in federation.vehicle_rows(trained)], nan_ok=True
    )


def test_labels_of_test_windows_choose_nothing(federation, trained):
    clients = []
    for client in federation.fleet.clients:
        labels = {**client.labels, "test": -7 * client.labels["test"]}
        clients.append(replace(client, labels=labels))
    other = Federation(
        replace(federation.fleet, clients=tuple(clients)),
        training=federation.training,
        seeds=federation.seeds,
        device="cpu",
    )
    tuned = personalise(federation, trained, SETTINGS)
    two = personalise(other, trained, SETTINGS)
    assert (tuned.test == two.test).all()


@pytest.mark.parametrize("method", ["fo-ri-fedavg", "scaffold", "moon", "fedadam"])
def test_every_method_can_be_made_personal(federation, method):
    state = federation.train(method).state
    result = personalise(federation, state.weights, replace(SETTINGS, rates=(0.01,), steps=(3,)))
    assert np.isfinite(result.test).all()


@pytest.mark.parametrize(
    "wrong", [{"rates": ()}, {"rates": (-1.0,)}, {"steps": (20, 5)}, {"steps": (0,)}, {"batch": 0}]
)
def test_settings_outside_their_range_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Personalisation(**wrong)
