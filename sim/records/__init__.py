"""What a run recorded, decoded: outcomes, gaps between tokens, steps."""
