"""Signed plans and certificates: who may take part in a training, and what it computes."""
