"""Questions that one simulation does not answer: the highest rate within an SLO, variants side by side."""
