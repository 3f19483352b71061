"""Experiments on the paper's own limitations, one file each, with what came of it.

| limitation | tried | file |
|---|---|---|
| L1: probes cost time, the index is noise | an index that repeats: sharpness | sharpness.py |
| L2: λ and α are fixed | a controller of each vehicle's pull | closed_loop.py |
| L3: one index describes a vehicle | four more signals, recorded beside training | signals.py |
"""
