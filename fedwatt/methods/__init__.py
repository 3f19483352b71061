"""Federated methods: local rules, server rules and the catalogue of named methods."""

from fedwatt.methods.catalogue import METHODS, get
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.method import Method
from fedwatt.methods.proximal import Proximal
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.server import Average, ServerRule

__all__ = [
    "METHODS", "Average", "Fractional", "LocalRule", "Method", "Proximal", "RoughnessProximal",
    "ServerRule", "get",
]  # fmt: skip
