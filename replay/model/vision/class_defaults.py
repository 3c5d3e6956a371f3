"""What a ``vision_config`` may leave out: defaults of the class that transformers 5.19 has for each kind of tower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

QWEN2_VL: Final[Mapping[str, object]] = {
    "depth": 32,
    "embed_dim": 1280,
    "mlp_ratio": 4,
    "num_heads": 16,
    "patch_size": 14,
}
QWEN2_5_VL: Final[Mapping[str, object]] = {
    "depth": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
QWEN3_VL: Final[Mapping[str, object]] = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "deepstack_visual_indexes": [8, 16, 24],
    "num_position_embeddings": 2304,
}
GLM4V: Final[Mapping[str, object]] = {
    "depth": 24,
    "hidden_size": 1536,
    "intermediate_size": 13696,
    "num_heads": 12,
    "patch_size": 14,
    "image_size": 336,
    "out_hidden_size": 4096,
}
SIGLIP: Final[Mapping[str, object]] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
GEMMA4: Final[Mapping[str, object]] = {
    "num_hidden_layers": 16,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "head_dim": 64,
    "pooling_kernel_size": 3,
    "patch_size": 16,
    "position_embedding_size": 10240,
}
LLAMA4: Final[Mapping[str, object]] = {
    "num_hidden_layers": 34,
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
PIXTRAL: Final[Mapping[str, object]] = {
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "patch_size": 16,
}
INTERN_VIT: Final[Mapping[str, object]] = {
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
}
