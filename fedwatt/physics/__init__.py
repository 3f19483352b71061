"""Energy from first principles: road load, drivetrain, cabin and pack; fleets made from them."""
