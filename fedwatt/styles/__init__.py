"""Driving styles: vehicles grouped by how the fleet's model sees them drive, from sums alone.

1. `on_board`     a vehicle's representation: hidden activations, trip by trip, at equal speed
2. `directions`   in which vehicles differ more than trips of one vehicle do
3. `kmeans`       clusters along them, with the assignment on board
4. `verdict`      how many, whether chance would give as many, and whether seeds agree
"""

from fedwatt.styles.find import Styles, find_styles

__all__ = ["Styles", "find_styles"]
