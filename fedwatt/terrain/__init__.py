"""The fleet's elevation field: learned from residual energy as sums that add, read as climb."""
