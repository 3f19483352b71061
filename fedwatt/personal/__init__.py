"""Personal models: each vehicle makes the global model its own, on board, after the rounds."""

from fedwatt.personal.finetune import Personalised, personalise
from fedwatt.personal.settings import Personal

__all__ = ["Personal", "Personalised", "personalise"]
