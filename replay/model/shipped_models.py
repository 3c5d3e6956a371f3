"""The models whose config.json ships (``configs/PROVENANCE.md`` has where each one's numbers are from), by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SHIPPED = Path(__file__).with_name("configs")

SAME_ARCHITECTURE: Mapping[str, tuple[str, ...]] = {
    "Qwen/Qwen2.5-32B-Instruct": ("Qwen/Qwen2.5-Coder-32B-Instruct",),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ("Qwen/Qwen3-Coder-30B-A3B-Instruct",),
    "meta-llama/Llama-2-70b-hf": ("meta-llama/Llama-2-70b-chat-hf",),
    "meta-llama/Llama-2-7b-hf": ("meta-llama/Llama-2-7b-chat-hf",),
    "meta-llama/Meta-Llama-3-8B": ("meta-llama/Meta-Llama-3-8B-Instruct",),
    "meta-llama/Meta-Llama-3-70B": ("meta-llama/Meta-Llama-3-70B-Instruct",),
    "meta-llama/Llama-3.1-8B": (
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    ),
    "meta-llama/Llama-3.1-70B": (
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "meta-llama/Meta-Llama-3.1-70B",
        "meta-llama/Llama-3.3-70B-Instruct",
        "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    ),
    "meta-llama/Llama-3.1-405B": ("meta-llama/Llama-3.1-405B-Instruct",),
    "meta-llama/Llama-3.2-1B": ("meta-llama/Llama-3.2-1B-Instruct",),
    "meta-llama/Llama-3.2-3B": ("meta-llama/Llama-3.2-3B-Instruct",),
    "google/gemma-3-4b-it": ("google/gemma-3-4b-pt",),
    "google/gemma-3-12b-it": ("google/gemma-3-12b-pt",),
    "google/gemma-3-27b-it": ("google/gemma-3-27b-pt",),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": ("mistralai/Mixtral-8x7B-v0.1",),
    "deepseek-ai/DeepSeek-V3": (
        "deepseek-ai/DeepSeek-V3-0324",
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-R1-0528",
    ),
    "deepseek-ai/DeepSeek-V2": ("deepseek-ai/DeepSeek-V2-Chat",),
    "deepseek-ai/DeepSeek-V2-Lite": ("deepseek-ai/DeepSeek-V2-Lite-Chat",),
}
"""Models that differ from one that ships in their weights' values only: tuned otherwise, or under an earlier name."""


def shipped_models() -> list[str]:
    """Return the Hugging Face names of the models whose config.json ships."""
    return sorted(model_name(file) for file in SHIPPED.glob("*.json"))


def shipped_config(name: str) -> Path | None:
    """Return the file of a model that ships, by its name with or without its organisation, letter case aside.

    A model of the same architecture (``SAME_ARCHITECTURE``) finds it, too.
    """
    wanted = name.lower()
    for base, others in SAME_ARCHITECTURE.items():
        if any(wanted in (other.lower(), other.lower().split("/")[-1]) for other in others):
            wanted = base.lower()
    for file in sorted(SHIPPED.glob("*.json")):
        full = model_name(file).lower()
        if wanted in (full, full.split("/")[-1]):
            return file
    return None


def model_name(file: Path) -> str:
    """Return a model's name from its file: a shipped one's, else that of the folder it lies in."""
    if file.parent == SHIPPED:
        return file.stem.replace("--", "/")
    return file.resolve().parent.name if file.stem == "config" else file.stem
