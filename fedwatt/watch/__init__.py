"""The live page of a run: progress.jsonl, served to a browser on this machine."""
