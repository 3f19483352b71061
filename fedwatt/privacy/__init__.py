"""Privacy budgets of training, and secure aggregation."""

from fedwatt.privacy.accounting import Budget, budget, budget_for

__all__ = ["Budget", "budget", "budget_for"]
