"""The fit: coefficients that bring the simulated side to the observed one."""
