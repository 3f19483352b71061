"""Personal models: each vehicle makes the global model its own, on board, after the rounds."""

from fedwatt.personal.finetune import Personal, PersonalModel, personalise

__all__ = ["Personal", "PersonalModel", "personalise"]
