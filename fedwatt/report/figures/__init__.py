"""Figures of runs, elevation maps and fleets."""
