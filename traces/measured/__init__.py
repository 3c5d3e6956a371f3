"""Which latencies of an answer were measured, by how its events came and how it ended."""
