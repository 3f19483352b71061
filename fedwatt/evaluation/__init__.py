"""Baselines without federation, and fine-tuning of the global model in each vehicle."""

from fedwatt.evaluation.finetune import Personal, PersonalModel, personalise
from fedwatt.evaluation.rows import REFERENCES, Reference, References, reference_rows

__all__ = [
    "REFERENCES",
    "Personal",
    "PersonalModel",
    "Reference",
    "References",
    "personalise",
    "reference_rows",
]
