"""What each feature adds to the engine's records, a module per feature; ``features`` has them all."""
