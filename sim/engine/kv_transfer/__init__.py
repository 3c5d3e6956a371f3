"""KV that comes from another engine, or goes to one: vLLM's scheduler with a connector that pulls (NixlConnector)."""
