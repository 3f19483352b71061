"""The server's side of a deployment: the rounds of a plan on connected vehicles."""
