"""Write a model that nobody trained: a small Llama's config.json and a byte-level tokenizer.

Runs under the Python of the vLLM environment: `python make_model.py FOLDER`. vLLM fills the weights at random
(`--load-format dummy`); what a request says does not matter to its timing, only how long it is.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 4096
BEGIN, END = "<s>", "</s>"  # tokens 0 and 1
TEXTS = 60  # files of the standard library: enough to learn a vocabulary from, and always there
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "initializer_range": 0.02,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def train_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with a chat template that only joins the messages."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:TEXTS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in texts], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return fast


def main(folder: Path) -> None:
    """Write the tokenizer, then config.json: a folder that has the latter is complete."""
    tokenizer = train_tokenizer()
    tokenizer.save_pretrained(str(folder))
    config = CONFIG | {"vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
