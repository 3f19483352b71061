"""The live page of a run: progress.jsonl, served to a browser on this machine."""

from fedwatt.watch.serve import serving

__all__ = ["serving"]
