"""What the engine can do beyond vLLM's defaults, off unless asked for."""
