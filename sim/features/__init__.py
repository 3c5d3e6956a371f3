"""Each feature of the engine: its settings, what is refused beside it, and its rules by version of vLLM."""
