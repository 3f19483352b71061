"""The same recipe in other frameworks, each in an environment of its own."""
