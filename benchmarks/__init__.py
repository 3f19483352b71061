"""Benchmarks: ratios measured in one run, beside plain implementations of the same work."""
