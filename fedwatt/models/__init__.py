"""Energy models whose lines run one vehicle or a whole stack of vehicles."""

from fedwatt.models.catalogue import MODELS, get_model
from fedwatt.models.mlp import MLP
from fedwatt.models.model import LOSSES, Layout, Loss, Model, get_loss
from fedwatt.models.module import ModuleModel
from fedwatt.models.recurrent import GRU, LSTM

__all__ = [
    "GRU",
    "LOSSES",
    "LSTM",
    "MLP",
    "MODELS",
    "Layout",
    "Loss",
    "Model",
    "ModuleModel",
    "get_loss",
    "get_model",
]
