"""A model's layers by kind, and how vLLM deals them into KV cache groups."""
