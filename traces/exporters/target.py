"""The formats that requests and runs can be exported to, by the names of ``trace convert --to``."""

from __future__ import annotations

from typing import Final, Literal, get_args

TargetFormat = Literal[
    "mooncake", "vllm-bench", "burstgpt", "azure", "blis-simresult", "blis-metrics", "spec"
]
TARGET_FORMATS: Final = get_args(TargetFormat)
