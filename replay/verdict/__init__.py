"""Whether a simulated server keeps up with what it is sent."""
