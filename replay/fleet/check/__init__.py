"""The formulas' fleet, simulated by the token-level engine."""
