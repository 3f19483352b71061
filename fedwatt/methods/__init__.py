"""Federated methods: local rules, server rules and the catalogue of named methods."""

from fedwatt.methods.catalogue import METHODS, get
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.method import Method
from fedwatt.methods.proximal import Proximal
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.methods.rule import LocalRule, Origin, PersonalTraining, Rows, Start, StepLoss
from fedwatt.methods.server import Average, Replies, ServerRule, mean_delta, moved
from fedwatt.settings import Range, choice, number

__all__ = [
    "METHODS",
    "Average",
    "Fractional",
    "LocalRule",
    "Method",
    "Origin",
    "PersonalTraining",
    "Proximal",
    "Range",
    "Replies",
    "RoughnessProximal",
    "Rows",
    "ServerRule",
    "Start",
    "StepLoss",
    "choice",
    "get",
    "mean_delta",
    "moved",
    "number",
]
