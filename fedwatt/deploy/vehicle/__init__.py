"""The vehicle's side of a deployment: what it accepts, computes, sends and keeps."""
