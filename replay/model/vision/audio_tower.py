"""Audio towers of config.json files: how many weights they have, which every GPU holds whole.

As the modules of vllm 0.32.0 have them (gemma4_mm.py, qwen2_audio.py, audioflamingo3.py); norms and biases left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from replay.model.config_json import ModelFields
from replay.model.vision.fields_of_towers import text_width
from traces import ConfigError

AUDIO = "audio_config"
KERNEL = 3
"""The kernel size of the convolutions that shorten the sound before the layers."""
MEL_BINS, SHORTENED = 128, 4
"""Bands of Gemma's spectrogram, and how many times fewer its two convolutions leave."""


def audio_parameters(fields: ModelFields) -> tuple[int, str]:
    """Return (the weights of the audio tower of a config.json, why they are not known): 0 and "" where it has none."""
    if not fields.values.get(AUDIO):
        return 0, ""
    kind = fields.text("model_type") or ""
    count = AUDIO_TOWERS.get(kind)
    if count is None:
        return (
            0,
            f"{AUDIO} of model_type {kind!r} is no audio tower that is known ({', '.join(AUDIO_TOWERS)})",
        )
    audio = fields.mapping(AUDIO)
    try:
        assert audio is not None  # noqa: S101 - it was just seen
        return count(audio, text_width(fields)), ""
    except ConfigError as error:
        return 0, f"{AUDIO} is not understood: {error}"


def _gemma4(audio: ModelFields, text: int) -> int:
    """Conformer layers: two MLPs, attention with relative places, a gated convolution between them."""
    audio = audio.completed({"hidden_size": 1024, "num_hidden_layers": 12, "output_proj_dims": 1536})
    hidden, out = audio.needed("hidden_size"), audio.needed("output_proj_dims")
    first, second = audio.integers("subsampling_conv_channels") or (128, 32)
    kernel = audio.integer("conv_kernel_size") or 5
    mlps, attention = 2 * 2 * 4 * hidden**2, 5 * hidden**2
    convolution = 3 * hidden**2 + kernel * hidden
    start = KERNEL**2 * (first + first * second) + MEL_BINS // SHORTENED * second * hidden
    layers = audio.needed("num_hidden_layers") * (mlps + attention + convolution)
    return start + layers + hidden * out + out * text


def _whisper(audio: ModelFields) -> int:
    """Return Whisper's encoder (arXiv:2212.04356): two convolutions, places, layers of attention and a plain MLP."""
    width = audio.needed("d_model", "hidden_size")
    inner = audio.needed("encoder_ffn_dim", "intermediate_size")
    bands, places = audio.integer("num_mel_bins") or MEL_BINS, audio.integer("max_source_positions") or 1500
    layers = audio.needed("encoder_layers", "num_hidden_layers") * (4 * width**2 + 2 * width * inner)
    return KERNEL * width * (bands + width) + places * width + layers


def _qwen2_audio(audio: ModelFields, text: int) -> int:
    return _whisper(audio) + audio.needed("d_model") * text


def _audioflamingo3(audio: ModelFields, text: int) -> int:
    return _whisper(audio) + audio.needed("d_model", "hidden_size") * text + text * text


AUDIO_TOWERS: Final[Mapping[str, Callable[[ModelFields, int], int]]] = {
    "gemma4": _gemma4,
    "qwen2_audio": _qwen2_audio,
    "audioflamingo3": _audioflamingo3,
}
"""The kinds that are known, by config.json's ``model_type``."""
