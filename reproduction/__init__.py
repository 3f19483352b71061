"""The paper's evidence, regenerated: every table and figure beside the printed numbers.

A *study* is a table or figure of the paper: the cells it needs and what it makes of their records.
A *cell* is one method on one dataset with all seeds in one stack; studies share cells. A cell's
record is cached under the hash of what determines it, so a reproduction continues where it stopped.
"""
