"""Profiles computed from a model and a GPU: their terms add up, and each follows from its table."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vtwin
from replay.fleet.inputs.computed import Computed, computed
from replay.model import find_gpu, read_model_config
from sim.fleet import Lengths

LENGTHS = Lengths(input_tokens=np.array([1000.0]), output_tokens=np.array([250.0]))


def of(model: str, gpu: str, tp: int) -> tuple[Computed, dict[str, tuple[float, float]]]:
    found = computed(model, gpu, tp=tp, lengths=LENGTHS, context=8192)
    return found, {each.name: (each.w_s, each.h_s) for each in found.terms}


@pytest.mark.parametrize(
    ("model", "tp"),
    [("meta-llama/Llama-3.1-8B", 1), ("Qwen/Qwen3-30B-A3B", 2), ("deepseek-ai/DeepSeek-V2-Lite", 1)],
)
def test_the_terms_add_up_to_w_and_h(model: str, tp: int) -> None:
    found, terms = of(model, "H100", tp)
    profile = found.source.profile
    assert sum(w for w, _ in terms.values()) == pytest.approx(profile.w_s, rel=1e-3)
    assert sum(h for _, h in terms.values()) == pytest.approx(profile.h_s, rel=1e-3)
    assert ("expert weights read" in terms) == ("Llama" not in model)
    assert ("all-reduce" in terms) == (tp > 1)
    assert ("GQA batching" in terms) == ("DeepSeek" not in model)  # MLA reads one latent for all heads


def test_w_and_h_are_the_bytes_over_the_effective_bandwidth() -> None:
    """16-bit weights of the 8B model once, the table of embeddings not; a request's KV of 8,192 tokens."""
    found, terms = of("meta-llama/Llama-3.1-8B", "H100", 1)
    effective = find_gpu("H100").bandwidth_gb_per_s * 1e9 * found.assumptions["bandwidth_efficiency"]
    shape = read_model_config("meta-llama/Llama-3.1-8B")
    weights = shape.attention_parameters() + shape.mlp_parameters() + shape.head_parameters()
    assert terms["weights read"][0] == pytest.approx(2 * weights / effective, rel=1e-6)
    assert terms["KV read"][1] == pytest.approx(8192 * 2 * 32 * 8 * 128 * 2 / effective, rel=1e-3)


def test_a_long_chunk_is_bound_by_compute_and_a_step_is_no_shorter_than_either_bound() -> None:
    prefill = of("meta-llama/Llama-3.1-8B", "H100", 1)[0].prefill
    assert prefill.bound == "compute"
    assert prefill.step_s >= max(prefill.compute_s, prefill.memory_s)


def test_the_command_shows_the_terms_and_sizes_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fleet", "profile", "--model", "Qwen/Qwen3-8B", "--gpu", "H100"]
    assert vtwin.main(asked) == 0
    shown = capsys.readouterr().out
    assert "# weights read" in shown
    assert "compute bound" in shown
    assert vtwin.main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in told["terms"]} >= {
        "weights read",
        "KV read",
        "CPU scheduling",
        "overlap",
    }
    assert vtwin.main(["fleet", "profile", "--from", "Qwen/Qwen3-8B@H100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == told["profile"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "Qwen/Qwen3-8B"], "expected --from, or --model and --gpu"),
        (["--from", "Qwen/Qwen3-8B@H100:two"], "expected MODEL@GPU:TP"),
        (["--model", "meta-llama/Llama-3.1-70B", "--gpu", "H100"], "expected a larger tp"),
    ],
)
def test_what_cannot_be_computed_is_told(
    capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert vtwin.main(["fleet", "profile", *options]) == 2
    assert complaint in capsys.readouterr().err
