"""One simulated run, from its options to its document."""
