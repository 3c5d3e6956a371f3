"""``vtwin fleet``: how many GPUs, which, and at what cost; by formulas first, then checked by simulated engines."""
