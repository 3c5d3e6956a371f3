"""KV that comes from another engine, or goes to one: vLLM's scheduler with a KV connector that pulls (NixlConnector)."""
