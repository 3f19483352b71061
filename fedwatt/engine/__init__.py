"""How a stack of vehicles trains: one job, one function, several engines."""
