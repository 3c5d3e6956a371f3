"""Is the engine vLLM's? Recordings of vLLM's own scheduler, step by step, against ours."""
