"""Two runs side by side, neither of them the truth: ``vtwin compare``."""
