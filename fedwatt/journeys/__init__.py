"""From windows to journeys: totals that add up, and what a trip teaches while it goes."""
