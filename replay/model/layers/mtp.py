"""The layers with which a model drafts for itself (multi-token prediction, MTP): what they keep of a request.

vLLM deals them out with the model's own layers, behind them (vllm 0.32.0 config/speculative.py:hf_config_override,
model_executor/models/*_mtp.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replay.model.config_json import ModelFields
from replay.model.shape import Mixer, MtpLayers

MODULES = "num_nextn_predict_layers"
"""How many modules draft one after another, where a config.json says it; else one that is run again."""
NUMBERS = (MODULES, "mtp_num_hidden_layers", "num_mtp_modules")
NUMBERS_IN_VLLM: Mapping[str, int] = {"mimo_v2_flash": 1}
"""By model type, where vLLM has the number itself (mimo_v2_mtp.py)."""
WINDOWED = frozenset({"mimo_v2_flash"})
"""Models of windows and full layers whose MTP layers are like those with a window (mimo_v2_mtp.py)."""


def mtp_layers(text: ModelFields, model_type: str, mixers: Sequence[Mixer]) -> MtpLayers | None:
    """Return a model's MTP layers, None where it has none, or it is not known which of its layers they are like."""
    number = NUMBERS_IN_VLLM.get(model_type) or text.integer(*NUMBERS) or 0
    like = _layers_like_theirs(model_type, mixers)
    if not number or like is None:
        return None
    return MtpLayers(mixer=replace(like, num_layers=number), num_modules=text.integer(MODULES) or 1)


def _layers_like_theirs(model_type: str, mixers: Sequence[Mixer]) -> Mixer | None:
    """Return the layers that MTP layers are like: those with keys and values, where these are alike.

    DeepSeek-V4's are windows without entries (``compress_ratios`` ends with 0: models/deepseek_v4/attention.py).
    """
    compressed = next((each for each in mixers if each.compression is not None), None)
    if compressed is not None and compressed.compression is not None:
        window = compressed.compression.window
        return Mixer(kind="sliding", num_layers=1, attention=compressed.attention, window=window)
    found = [each for each in mixers if each.attention is not None]
    if model_type in WINDOWED:
        found = [each for each in found if each.is_windowed]
    return found[0] if len(found) == 1 else None
