"""A run folder made readable: one page, figures and tables."""
