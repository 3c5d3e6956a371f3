"""What speed is measured with: `make bench`. Not part of the tests, whose machine is shared and noisy."""
