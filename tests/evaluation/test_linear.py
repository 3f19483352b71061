"""The mean and the ridge of a vehicle, on labels whose best prediction is known."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.evaluation.baselines import feature_means, mean_baseline, ridge_baseline
from tests.federation.toys import random_fleet


@pytest.fixture
def client():
    return random_fleet((70,)).clients[0]


def test_the_mean_is_that_of_training_labels(client):
    labels = {**client.labels, "train": np.array([1, 2, 6], dtype=np.float32)}
    labels["validation"] = np.array([1, 5], dtype=np.float32)
    mean = mean_baseline(replace(client, labels=labels))
    assert mean.test.tolist() == [3.0] * len(client.ends["test"])
    assert mean.validation_error == 4.0


def test_window_means_are_direct_means(client):
    end = client.ends["validation"][-1]
    direct = client.series[end - client.window + 1 : end + 1].mean(axis=0)
    assert feature_means(client, "validation")[-1] == pytest.approx(direct, abs=1e-6)


def linear_in_means(client, slopes, level):
    """The client with labels that are linear in the means of its windows."""
    labels = {
        split: (feature_means(client, split) @ slopes + level).astype(np.float32)
        for split in client.ends
    }
    return replace(client, labels=labels)


def test_a_ridge_finds_what_is_linear_in_window_means(client):
    slopes = np.linspace(-2, 3, len(client.features))
    linear_client = linear_in_means(client, slopes, 0.7)
    # The lightest ridge is 1e-6 of the features' variance, and labels are float32.
    ridge = ridge_baseline([linear_client])
    assert ridge.test == pytest.approx(linear_client.labels["test"], abs=1e-3)
    assert ridge.validation_error < 1e-6


def test_of_several_kinds_of_features_validation_chooses(client):
    linear_client = linear_in_means(client, np.ones(len(client.features)), 0.0)
    blind = replace(linear_client, series=np.zeros_like(linear_client.series))
    assert ridge_baseline([blind]).test == pytest.approx(mean_baseline(linear_client).test)
    for candidates in ([blind, linear_client], [linear_client, blind]):
        assert ridge_baseline(candidates).test == pytest.approx(
            linear_client.labels["test"], abs=1e-3
        )
