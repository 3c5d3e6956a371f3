"""``vtwin fleet``: how many GPUs, which, and at what cost; formulas first, then the simulated engines' word on them."""
