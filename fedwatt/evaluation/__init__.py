"""Baselines without federation, and fine-tuning of the global model in each vehicle."""

from fedwatt.evaluation.finetune import Personalisation, PersonalisedModel, personalise
from fedwatt.evaluation.rows import REFERENCES, Baseline, Baselines, baseline_rows

__all__ = [
    "REFERENCES",
    "Baseline",
    "Baselines",
    "Personalisation",
    "PersonalisedModel",
    "baseline_rows",
    "personalise",
]
