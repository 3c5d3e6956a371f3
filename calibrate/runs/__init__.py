"""Two runs side by side, neither of them the reference: ``vtwin compare``."""
