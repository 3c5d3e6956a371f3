"""The formats that requests and runs can be exported to, by the names of ``trace convert --to``."""

from __future__ import annotations

from typing import Final, Literal, get_args

ResultTarget = Literal["vllm-bench-result", "guidellm-report", "genai-perf-summary"]
RESULT_TARGETS: Final = get_args(ResultTarget)
"""Results of other benchmarks: what their dashboards read."""

TargetFormat = Literal[
    "mooncake", "vllm-bench", "burstgpt", "azure", "blis-simresult", "blis-metrics", "spec", ResultTarget
]
TARGET_FORMATS: Final = get_args(TargetFormat)
