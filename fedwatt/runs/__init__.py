"""Runs: configuration, the `Run`, its folder and checkpoints, its result, observers, trackers."""
