"""The engine behind an OpenAI-compatible HTTP interface, in real time: a vLLM without a GPU."""
