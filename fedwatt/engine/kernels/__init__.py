"""Code for a processor or a GPU that does what a model and its rules say, only faster."""
