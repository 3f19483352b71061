"""What maps add to a trip: elevation and grade, speed limits and what lies along the road."""
