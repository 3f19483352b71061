"""Driving-style clusters: vehicles grouped by the model's representation of their driving.

An example on the public interface: `python -m examples.driving_styles RUN`. The server receives
sums over vehicles only.

1. `vehicle_sums` a vehicle's representation: hidden activations, trip by trip, at equal speed
2. `directions`   in which vehicles differ more than trips of one vehicle do
3. `kmeans`       clusters along them, with the assignment on board
4. `verdict`      how many, whether chance would give as many, and whether seeds agree
"""

from examples.driving_styles.find import Styles, find_styles

__all__ = ["Styles", "find_styles"]
