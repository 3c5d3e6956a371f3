"""One server of a TWIN.yaml: its engine, its latency, and what it has room for."""
