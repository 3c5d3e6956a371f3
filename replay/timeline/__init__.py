"""A simulation over time: what was in use, and every step and request on a timeline."""
