"""Prompts with common beginnings, sent to a real vLLM whose model has windows: what it found cached, and what the twin.

A part of ``make live``; results in vtwin-live/. Each ``--prefix-cache-retention-interval`` has a server of its own.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import urllib.request
from pathlib import Path

import numpy as np

from sim import Blackbox, EngineConfig, KVCacheGroup, Requests, simulate
from tests.studies.live.server import ENGINE, VLLM, Installation, installation, say, serving

OUTPUT = Path("vtwin-live")
BLOCK = int(str(ENGINE["block_size"]))
WINDOW, NUM_TOKENS = 256, 4
CONFIG = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "sliding_window": WINDOW,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "max_position_embeddings": 8192,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "vocab_size": 4096,
}
GROUPS = (*[KVCacheGroup(kind="sliding", window=WINDOW)] * 2, KVCacheGroup(kind="full"))
INTERVALS: dict[str, int | None] = {"its default": 0, "0": 0, "None": None, "512": 512}


def prompts() -> list[list[int]]:
    """Return prompts as token ids: with a common beginning, again, longer, and with half of that beginning."""

    def tokens(seed: int, number: int) -> list[int]:
        draw = random.Random(seed)
        return [draw.randrange(10, 4000) for _ in range(number)]

    common = tokens(0, 1024)
    first, second, third = [common + tokens(seed, 500) for seed in (1, 2, 3)]
    longer = [first + tokens(9, 300), third + tokens(8, 300)]
    return [first, second, third, first, *longer, *(common[:512] + tokens(seed, 600) for seed in (4, 5, 6))]


def ask(url: str, prompt: list[int]) -> int:
    """Send a prompt; return how many of its tokens the server found cached."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    data, header = json.dumps(body).encode(), {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/v1/completions", data, header)  # noqa: S310 - our own server
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - likewise
        usage = json.load(answer)["usage"]
    return int((usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0)


def cached_by_twin(interval: int | None) -> list[int]:
    """Return how many tokens of each prompt the twin finds cached, one request at a time."""
    numbers: dict[tuple[int, ...], int] = {}
    contents, offsets = [], [0]
    for prompt in prompts():
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            contents.append(numbers.setdefault(tuple(prompt[:end]), len(numbers)))
        offsets.append(len(contents))
    number = len(offsets) - 1
    requests = Requests(
        arrival_us=np.arange(number) * 10**8,
        prompt_tokens=np.array([len(prompt) for prompt in prompts()]),
        output_tokens=np.full(number, NUM_TOKENS),
        priority=np.zeros(number, np.int64),
        hash_offsets=np.array(offsets),
        hash_ids=np.array(contents),
    )
    config = EngineConfig(
        block_size=BLOCK,
        num_gpu_blocks=1000,
        max_num_batched_tokens=2048,
        max_model_len=4096,
        kv_cache_groups=GROUPS,
        prefix_cache_retention_interval=interval,
    )
    run = simulate(requests, config, Blackbox(beta0=1000, beta1=1, beta2=1))
    return [int(cached) for cached in run.outcomes.num_cached_tokens]


def main() -> int:
    """Ask a server per interval; return 1 where the twin finds something else."""
    OUTPUT.mkdir(exist_ok=True)
    place = installation()
    model = OUTPUT / "hybrid-model"
    shutil.copytree(place.model, model, dirs_exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    place = Installation(environment=place.environment, model=model.absolute())
    results, num_equal = [], 0
    for name, interval in INTERVALS.items():
        flags = [] if name == "its default" else ["--prefix-cache-retention-interval", name]
        with serving(place, log=OUTPUT / "hybrid-server.log", flags=flags) as url:
            server = [ask(url, prompt) for prompt in prompts()]
        twin = cached_by_twin(interval)
        equal = sum(ours == theirs for ours, theirs in zip(twin, server, strict=True))
        num_equal += equal
        results.append({"vllm": VLLM, "interval": name, "server": server, "twin": twin})
        say(f"interval {name}: cached tokens equal in {equal} of {len(server)} requests: {server}")
    (OUTPUT / "hybrid.json").write_text(json.dumps(results, indent=1) + "\n")
    return int(num_equal < len(INTERVALS) * len(prompts()))


if __name__ == "__main__":
    sys.exit(main())
