"""The compiled engine: vLLM's scheduler as functions over arrays, read as schedule, run, update."""
