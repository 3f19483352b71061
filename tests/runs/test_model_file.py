import pytest
import torch

from fedwatt.errors import RunError
from fedwatt.runs.config import from_tables
from fedwatt.runs.model_file import (
    MODEL_FILE,
    model_prefix,
    read_model,
    read_model_config,
    write_models,
)


def test_a_model_comes_back_under_its_own_names(tmp_path):
    config = from_tables({})
    weights = {("fedavg", "best", 1): 1.0, ("fedavg", "best", 11): 2.0, ("fedavg", "last", 1): 3.0}
    tensors = {
        model_prefix(*key) + "output.bias": torch.tensor([value]) for key, value in weights.items()
    }
    write_models(tmp_path, tensors, config)
    assert read_model_config(tmp_path) == config
    for key, value in weights.items():  # seed 1 is not the beginning of seed 11
        result = read_model(tmp_path, *key)
        assert list(result) == ["output.bias"] and result["output.bias"] == [value]
    with pytest.raises(RunError, match="has not trained 'fedprox' yet"):
        read_model(tmp_path, "fedprox", "best", 1)


def test_no_file_and_a_damaged_one(tmp_path):
    with pytest.raises(RunError, match="is not a finished run"):
        read_model(tmp_path, "fedavg", "best", 1)
    (tmp_path / MODEL_FILE).write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"is damaged.*environment\.json: --resume"):
        read_model(tmp_path, "fedavg", "best", 1)
