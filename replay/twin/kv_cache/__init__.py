"""A server's KV cache: groups of layers that keep the same tokens, and a second tier."""
