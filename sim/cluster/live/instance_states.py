"""What an instance of a running cluster can be."""

INSTANCE_STATES = ("off", "coming", "ready", "down", "draining")
"""In the order of their numbers in ``sim.cluster.run.changes.operations``."""
