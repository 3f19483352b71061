"""Figures of runs and of elevation maps."""
