"""Write a tokenizer whose tokens are those of ``vtwin serve``, for tools that count, so that both count alike.

A token is a space and up to five letters: the server's own piece of text (replay/serve/tokens.py). Texts are brought to
such words first: lower case, all else a space, the rest of longer words cut off.
"""

from __future__ import annotations

import json
import re
import sysconfig
from collections import Counter
from pathlib import Path

VOCABULARY = 4000
TEXTS = 60  # files of the standard library: always there
UNKNOWN = " and"
SPECIAL = {
    "bos_token": "<s>",
    "eos_token": "</s>",
}  # not the unknown word: decoding may leave special ones out
NORMALIZER = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": "[^a-z]+"}, "content": " "},
        {"type": "Replace", "pattern": {"Regex": "(?<=[a-z]{5})[a-z]+"}, "content": ""},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Prepend", "prepend": " "},
    ],
}
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}


def vocabulary() -> dict[str, int]:
    """Return the commonest words of some texts, each a token with its number."""
    found: Counter[str] = Counter()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:TEXTS]:
        found.update(word[:5] for word in re.findall("[a-z]+", path.read_text(errors="replace").lower()))
    words = [f" {word}" for word, _ in found.most_common(VOCABULARY)]
    tokens = dict.fromkeys([SPECIAL["bos_token"], SPECIAL["eos_token"], UNKNOWN, *words])
    return {token: number for number, token in enumerate(tokens)}


def write_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and what names its class, as Hugging Face's readers look for them."""
    tokens = vocabulary()
    added = [
        {
            "id": tokens[name],
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name in (SPECIAL["bos_token"], SPECIAL["eos_token"])
    ]
    split = {"type": "Split", "pattern": {"Regex": " [a-z]+"}, "behavior": "Isolated", "invert": False}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": NORMALIZER,
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": UNKNOWN},
    }
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    said = SPECIAL | {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    said |= {"model_max_length": 4096, "clean_up_tokenization_spaces": False}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer", whole), ("tokenizer_config", said), ("config", CONFIG)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
