"""From raw readings to clean trips, on the vehicle, with an account of what was dropped."""
