"""Attacks on a fleet's messages, measured: what each recovers at each level of protection."""

from fedwatt.audit.card import Card, attack_fleet
from fedwatt.audit.levels import LEVELS

__all__ = ["LEVELS", "Card", "attack_fleet"]
