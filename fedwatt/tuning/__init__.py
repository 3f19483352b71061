"""Equal tuning of methods, and grids of independent runs over one or many machines."""
