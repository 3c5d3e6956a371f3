"""How long a sequence may be that vLLM takes without ``--max-model-len``: what the model's config.json says of it."""

from __future__ import annotations

from replay.model.config_json import ModelFields, shown

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""The fields that vLLM looks at; the smallest counts (vllm 0.32.0 config/model.py:_get_and_verify_max_len)."""

LENGTH_OF_NONE = 2048
"""What vLLM takes where the file has none of them."""

INCLUDED_ALREADY = ("su", "longrope", "llama3", "default", "mrope", "proportional")
"""Ways of stretching rotary embeddings whose file states the stretched length."""


def max_model_len(text: ModelFields) -> int:
    """Return the longest sequence, prompt and output, by the fields of a config.json (its language model's).

    A file that stretches its rotary embeddings states the length before; with yarn it is the original one, times the
    factor. Gemma 3 states the length after. Raises ConfigError on a factor that is no number.
    """
    stated = [length for name in LENGTHS if (length := text.integer(name))]
    longest = min(stated, default=LENGTH_OF_NONE)
    rope = text.mapping("rope_parameters") or text.mapping("rope_scaling")
    if rope is None or "gemma3" in (text.text("model_type") or ""):
        return longest
    kind = rope.text("rope_type", "type") or "default"
    if kind in INCLUDED_ALREADY:
        return longest
    if kind == "yarn":
        longest = rope.integer("original_max_position_embeddings") or longest
    factor = rope.values.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
        rope.fail("factor", got=shown(factor), expected="a number > 0")
    return int(longest * factor)
