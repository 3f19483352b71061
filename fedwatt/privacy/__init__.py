"""What a private training has given away so far."""

from fedwatt.privacy.accounting import Budget, budget, budget_for

__all__ = ["Budget", "budget", "budget_for"]
