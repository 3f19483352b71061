"""The elevation map that a fleet learns from its energy use."""
