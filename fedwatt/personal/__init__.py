"""Personal models: each vehicle makes the global model its own, on board, after the rounds."""

from fedwatt.personal.finetune import Personalised, PersonalModel, personal_models, personalise
from fedwatt.personal.settings import Personal

__all__ = ["Personal", "PersonalModel", "Personalised", "personal_models", "personalise"]
