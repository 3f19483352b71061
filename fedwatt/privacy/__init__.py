"""What a private training has given away so far."""

from fedwatt.privacy.accounting import Budget, budget, terrain_budget

__all__ = ["Budget", "budget", "terrain_budget"]
