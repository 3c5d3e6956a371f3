"""Values of Helm charts and vLLM's own ``--config`` file, put in words of ``vllm serve``.

vLLM's production stack has a list ``modelSpec``: ``vllmConfig`` names a few flags in its own spelling, ``extraArgs``
has the rest (helm/templates/deployment-vllm-multi.yaml of that project says which flags come of which key).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from replay.twin.start.flag_table import FLAGS
from replay.twin.start.launches import Launch

CHART_KEYS: Final = ("vllmConfig",)
"""Keys by which a mapping is known as the production stack's."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OF_THE_CHART: Final = ("extraArgs", "v0", "v1", "prometheusMultiprocDir")
FEWEST: Final = 1
"""Flags beside the model by which a mapping is taken for vLLM's own file."""


def chart_words(spec: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Return the words of ``vllm serve`` that one entry of ``modelSpec`` comes to, and what to tell of them."""
    model, config = spec.get("modelURL"), spec.get("vllmConfig")
    words = [model] if isinstance(model, str) else []
    notes: list[str] = []
    given = config if isinstance(config, dict) else {}
    for key, value in given.items():
        if key not in _OF_THE_CHART and not isinstance(value, dict | list):
            words += _flag(_HUMP.sub("-", key).lower(), value)
    if "enablePrefixCaching" not in given:
        words.append("--no-enable-prefix-caching")
        notes.append(
            "enablePrefixCaching not given: the production stack's chart then turns prefix caching off"
        )
    if spec.get("enableLoRA") is True:
        words.append("--enable-lora")
    more = given.get("extraArgs")
    words += (
        [str(item).lower() if isinstance(item, bool) else str(item) for item in more]
        if isinstance(more, list)
        else []
    )
    return words, notes


def plain_flags(documents: list[object]) -> Launch | None:
    """Return the launch of a file for vLLM's ``--config``: a model, and flags by their names; None of other files."""
    said = documents[0] if len(documents) == 1 else None
    if not isinstance(said, dict):
        return None
    names = {str(key).replace("_", "-"): value for key, value in said.items()}
    model = names.pop("model", names.pop("model-tag", None))
    known = [name for name in names if name in FLAGS]
    if not isinstance(model, str) or len(known) < FEWEST or len(known) * 2 < len(names):
        return None
    words = [model]
    for name, value in names.items():
        words += _flag(name, value)
    return Launch(words=tuple(words), origin="a file for vllm serve --config")


def _flag(name: str, value: object) -> list[str]:
    """Return a flag and its value as words."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value)]
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}={value}"]
