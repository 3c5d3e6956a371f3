"""KV blocks: the pool and its free queue, the prefix cache, slots for tokens, the second tier in host memory, pins."""
