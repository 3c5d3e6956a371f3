"""What a server says of its own steps: vLLM's log of them, ``.steps.csv`` beside a trace, and Dynamo's records.

``read_logged_steps`` reads any of them; ``parse_engine_log`` the lines of a log alone.
"""

from traces.steps.logged_steps import LoggedSteps, read_logged_steps
from traces.steps.vllm_log import EngineStep, parse_engine_log

__all__ = ["EngineStep", "LoggedSteps", "parse_engine_log", "read_logged_steps"]
