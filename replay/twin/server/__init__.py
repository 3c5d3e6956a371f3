"""One server of a TWIN.yaml: its engine, its latency, and the size of its KV cache."""
