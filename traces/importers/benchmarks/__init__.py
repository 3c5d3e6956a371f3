"""Results of load generators, each a trace of what it sent and measured."""
