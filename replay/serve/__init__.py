"""The engine behind an OpenAI-compatible HTTP interface, in real time: a vLLM without a GPU."""

from replay.serve.server import Listening, run_server, serving, serving_instances

__all__ = ["Listening", "run_server", "serving", "serving_instances"]
