"""Baselines without federation, and fine-tuning of the global model in each vehicle."""

from fedwatt.evaluation.baselines import REFERENCES, Baseline, Baselines, baseline_rows
from fedwatt.evaluation.finetune import Personalisation, PersonalisedModel, personalise

__all__ = [
    "REFERENCES",
    "Baseline",
    "Baselines",
    "Personalisation",
    "PersonalisedModel",
    "baseline_rows",
    "personalise",
]
