"""A trace to the simulator's columns, and a simulation back to a trace."""
