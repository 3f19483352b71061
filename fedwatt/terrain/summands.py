"""How a vehicle's part in a sum over the fleet is declared: named numbers with a limit each."""

LARGEST = 2.0**24
"""Of a vehicle's sum at a node or pair; some ten thousand passes of a lorry stay far below it, and
among 10,000 vehicles sums are still exact to 2^-26 a vehicle."""

Fields = dict[str, tuple[int, float]]
"""{name: (how many, largest absolute value)}."""
