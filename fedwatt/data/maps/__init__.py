"""What maps add to a trip: elevation, roads, speed limits."""
