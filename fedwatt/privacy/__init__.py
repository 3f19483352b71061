"""What a private training has given away so far."""

from fedwatt.privacy.accounting import Budget, budget

__all__ = ["Budget", "budget"]
