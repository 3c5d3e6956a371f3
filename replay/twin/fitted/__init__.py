"""What a fit leaves in TWIN.yaml beside coefficients: the loads it has seen, how far steps may be off, tiles."""
