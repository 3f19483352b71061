"""Other frameworks that train the same recipe, each in an environment of its own."""
