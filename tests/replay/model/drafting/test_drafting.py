"""What drafts: as many weights as vLLM's own modules have, its KV, and what a draft takes.

``draft_weights.json``: parameters on one of 1 and 4 GPUs of the module that vllm 0.32.0 drafts with, made on torch's
meta device, norms included; without embedding and head where it shares the model's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay.model import ModelShape, Serving, find_gpu, kv_cache_size, read_model_config
from replay.model.drafting.draft_times import batches, draft_us, passes_us
from replay.model.drafting.read_drafter import HeadMethod, read_drafter
from replay.model.gpu_memory import dealt_of, draft_bytes
from replay.model.layers.drafter import Drafter, in_one_precision, mtp_drafter
from replay.model.layout import Layout
from replay.model.model_peak import peak_times
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from sim.latency import Roofline, StepBatch
from traces import ConfigError

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("draft_weights.json").read_text())
NORMS = 4e-4
H200 = find_gpu("H200")
HEAD = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA = "meta-llama/Llama-3.1-8B"
BLACKBOX = "latency: {model: blackbox, coefficients: {alpha0: 1, alpha1: 1, alpha2: 0, beta0: 9, beta1: 1, beta2: 1}}\n"


def written(folder: Path, fields: dict[str, Any], name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(fields))
    return path


def drafter_in(case: dict[str, Any], folder: Path) -> Drafter:
    """Return the drafter of a recorded case, all in 16 bits."""
    if "method" in case:
        of = read_model_config(LLAMA)
        return read_drafter(written(folder, case["config"]), method=case["method"], of=of)
    named = case["config"]
    shape = read_model_config(named if isinstance(named, str) else written(folder, named))
    found = mtp_drafter(shape)
    assert found is not None
    return replace(found, shape=in_one_precision(found.shape))


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["class"])
def test_a_drafter_has_as_many_weights_as_vllm_s(case: dict[str, Any], tmp_path: Path) -> None:
    drafter = drafter_in(case, tmp_path)
    for tp, parameters in case["gpus"].items():
        found = draft_bytes(drafter, tp=int(tp)) / drafter.shape.dtype_bytes
        assert 0 < parameters - found < NORMS * parameters


def test_experts_of_a_drafter_are_shared_out_as_the_model_s() -> None:
    drafter = mtp_drafter(read_model_config("deepseek-ai/DeepSeek-V3"))
    assert drafter is not None
    whole, shared = (draft_bytes(drafter, tp=8, layout=Layout(dp=dp)) for dp in (1, 4))
    assert whole - shared == pytest.approx(drafter.shape.expert_parameters() / 8 * 3 / 4, rel=1e-3)


def test_layers_that_the_quantization_spares_are_kept_in_16_bits(tmp_path: Path) -> None:
    fields = json.loads(Path("replay/model/configs/deepseek-ai--DeepSeek-V3.json").read_text())
    quantized = fields["quantization_config"]
    took = []
    for spared in ([], ["model.layers.61*"], ["mtp.*"], ["model.layers.61.self_attn*"], ["model.layers.6*"]):
        fields["quantization_config"] = {**quantized, "modules_to_not_convert": spared}
        drafter = mtp_drafter(read_model_config(written(tmp_path, fields)))
        assert drafter is not None
        took.append(drafter.shape.expert_precision.bytes_per_weight)
    of_layers = (
        2 / 58
    )  # 6 and 60, two of the model's own layers with experts; theirs are taken to be kept alike
    assert took == [1, 2, 2, 1, pytest.approx(1 + of_layers)]


def test_drafts_by_mtp_leave_fewer_blocks_by_weights_and_by_kv() -> None:
    shape = read_model_config("deepseek-ai/DeepSeek-V3")
    drafter = mtp_drafter(shape)
    plain, drafting = (
        kv_cache_size(shape, H200, tp=8, serving=Serving(drafter=each, num_speculative_tokens=1))
        for each in (None, drafter)
    )
    assert drafter is not None
    assert drafting.draft_bytes == draft_bytes(drafter, tp=8)
    assert drafting.weight_bytes == plain.weight_bytes + drafting.draft_bytes
    block = 62 * 16 * 576 * 2  # layers x tokens x the latent vector, in 16 bits
    assert drafting.num_gpu_blocks == int(drafting.kv_bytes // block)
    assert plain.num_gpu_blocks == int(plain.kv_bytes // (block / 62 * 61))


@pytest.mark.parametrize(("kinds", "windows"), [("sliding", [512]), ("full", [0]), ("", None)])
def test_a_file_that_lists_more_kinds_than_layers_says_those_of_the_layers_that_draft(
    kinds: str, windows: list[int] | None, tmp_path: Path
) -> None:
    fields = json.loads(Path("replay/model/configs/stepfun-ai--Step-3.7-Flash.json").read_text())
    if kinds:
        fields["layer_types"] = [*fields["layer_types"], *[f"{kinds}_attention"] * 3]
    drafter = mtp_drafter(read_model_config(written(tmp_path, fields)))
    found = None if drafter is None else [each.window for each in drafter.shape.mixers]
    assert found == windows
    if drafter is not None:
        assert (drafter.shape.num_layers, drafter.num_modules, drafter.shape.experts) == (3, 3, None)


def test_kinds_of_layers_that_draft_may_stand_in_a_list_of_their_own(tmp_path: Path) -> None:
    fields = json.loads(Path("replay/model/configs/stepfun-ai--Step-3.7-Flash.json").read_text())
    fields["mtp_layer_types"] = ["sliding_attention"] * 3
    drafter = mtp_drafter(read_model_config(written(tmp_path, fields)))
    assert drafter is not None
    assert [each.window for each in drafter.shape.mixers] == [512]


def test_each_of_step_s_layers_that_draft_has_a_head_of_its_own(tmp_path: Path) -> None:
    fields = json.loads(Path("replay/model/configs/stepfun-ai--Step-3.7-Flash.json").read_text())
    fields["mtp_layer_types"] = ["sliding_attention"] * 3
    drafter = mtp_drafter(read_model_config(written(tmp_path, fields)))
    assert drafter is not None
    more = draft_bytes(drafter) - draft_bytes(replace(drafter, has_head=False))
    assert more == 3 * 2 * 128_896 * 4096


def test_a_stage_that_drafts_has_an_embedding_of_its_own(tmp_path: Path) -> None:
    drafter = read_drafter(written(tmp_path, HEAD), method="eagle", of=read_model_config(LLAMA))
    more = draft_bytes(drafter, pp=2) - draft_bytes(drafter)
    assert more == 2 * 128256 * 4096


def test_an_eagle_head_is_one_more_layer_of_the_cache(tmp_path: Path) -> None:
    shape = read_model_config(LLAMA)
    drafter = read_drafter(written(tmp_path, HEAD), method="eagle", of=shape)
    plain, drafting = (dealt_of(shape, tp=1, serving=Serving(drafter=each)) for each in (None, drafter))
    assert (len(drafting.groups), drafting.groups[0].num_layers) == (1, 33)
    assert drafting.bytes_per_block * 32 == plain.bytes_per_block * 33
    other = {**HEAD, "num_key_value_heads": 32}  # pages of other bytes, in one group all the same
    drafter = read_drafter(written(tmp_path, other), method="eagle", of=shape)
    mixed = dealt_of(shape, tp=1, serving=Serving(drafter=drafter))
    assert mixed.bytes_per_block == plain.bytes_per_block * (32 + 4) // 32


OSS_HEAD = HEAD | {"hidden_size": 2880, "intermediate_size": 17280, "num_attention_heads": 64, "head_dim": 64}


@pytest.mark.parametrize(
    ("model", "head", "block_size", "num_blocks"),
    [
        (LLAMA, HEAD, 16, 4964),
        (LLAMA, {**HEAD, "num_key_value_heads": 32}, 16, 4551),
        (LLAMA, {**HEAD, "num_key_value_heads": 4}, 16, 5041),
        ("openai/gpt-oss-20b", {**OSS_HEAD, "num_key_value_heads": 8}, 32, 12_603),
        ("openai/gpt-oss-20b", {**OSS_HEAD, "num_key_value_heads": 16}, 16, 163_840),
    ],
)
def test_blocks_beside_an_eagle_head_are_those_of_vllm(
    model: str, head: dict[str, Any], block_size: int, num_blocks: int, tmp_path: Path
) -> None:
    """Of 10 GiB, as vllm 0.32.0's get_kv_cache_configs answered for the layers of both modules (layout LBNHC)."""
    shape = replace(read_model_config(model), kv_dtype_bytes=2.0)
    drafter = read_drafter(written(tmp_path, head), method="eagle3", of=shape)
    serving = Serving(block_size=block_size, drafter=drafter, num_speculative_tokens=2)
    assert dealt_of(shape, tp=1, serving=serving).num_blocks(10 * 2**30) == num_blocks


def test_deepseek_v4_is_drafted_for_by_its_own_layers_alone(tmp_path: Path) -> None:
    shape = read_model_config("deepseek-ai/DeepSeek-V4-Pro")
    drafter = read_drafter(written(tmp_path, HEAD | {"hidden_size": 7168}), method="eagle", of=shape)
    with pytest.raises(ConfigError, match=r"speculative_method: got .* for .*V4-Pro, expected mtp"):
        dealt_of(shape, tp=8, serving=Serving(drafter=drafter))


def test_a_head_of_the_speculators_library_is_read_as_its_layers(tmp_path: Path) -> None:
    of = read_model_config(LLAMA)
    bare = {**HEAD, "draft_vocab_size": 32000}
    plain = read_drafter(written(tmp_path, bare), method="eagle3", of=of)
    wrapped = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "transformer_layer_config": HEAD,
    }
    found = read_drafter(written(tmp_path, wrapped), method="eagle3", of=of)
    assert draft_bytes(found, tp=2) == draft_bytes(plain, tp=2)


NARROW = HEAD | {"hidden_size": 2048, "num_attention_heads": 16, "draft_vocab_size": 32000}


def test_a_narrower_head_has_an_embedding_of_its_own_for_every_token(tmp_path: Path) -> None:
    """As vllm 0.32.0 shares none of another width (llm_base_proposer.py: _maybe_share_embeddings)."""
    of = read_model_config(LLAMA)
    head = read_drafter(written(tmp_path, NARROW | {"target_hidden_size": 4096}), method="eagle3", of=of)
    shared = draft_bytes(replace(head, has_embedding=False))
    assert draft_bytes(head) - shared == 2 * 128256 * 2048
    assert head.joining_parameters == 3 * 4096 * 2048


def test_a_stage_s_embedding_has_more_tokens_than_an_eagle3_head(tmp_path: Path) -> None:
    of = read_model_config(LLAMA)
    head = read_drafter(written(tmp_path, HEAD | {"draft_vocab_size": 32000}), method="eagle3", of=of)
    assert draft_bytes(head, pp=2) - draft_bytes(head) == 2 * 128256 * 4096


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_a_head_of_another_width_or_a_whole_model_is_no_head(method: HeadMethod, tmp_path: Path) -> None:
    of = read_model_config(LLAMA)
    with pytest.raises(
        ConfigError, match=r"for hidden states of 2,048 .*, expected 4,096, as .*Llama-3\.1-8B"
    ):
        read_drafter(written(tmp_path, NARROW), method=method, of=of)
    with pytest.raises(
        ConfigError, match=rf"with 32 layers, expected a head of {method}: fewer .* draft_model"
    ):
        read_drafter(LLAMA, method=method, of=of)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "draft_model"])
def test_a_drafter_has_its_model_s_types(method: HeadMethod, tmp_path: Path) -> None:
    """The engine has one type and one of the KV cache (vllm 0.32.0 config/speculative.py), so drafts read less, too."""
    of = replace(read_model_config(LLAMA), kv_dtype_bytes=1.0)
    wide = written(tmp_path, HEAD | {"torch_dtype": "float32"})
    found = read_drafter(wide, method=method, of=of).shape
    assert (found.kv_dtype_bytes, found.dtype_bytes, found.dtype) == (1.0, 2, "bfloat16")


def test_a_draft_model_has_all_of_its_own() -> None:
    small = read_model_config("meta-llama/Llama-3.2-1B")
    found = read_drafter("meta-llama/Llama-3.2-1B", method="draft_model", of=read_model_config(LLAMA))
    assert draft_bytes(found) / 2 == pytest.approx(small.num_parameters(), rel=1e-3)


# -- time -----------------------------------------------------------------------------------------------------


def decoding(num_tokens: int, num_seqs: int) -> StepBatch:
    """Return a step of requests that decode, each with 2,048 tokens of context that its tokens read together."""
    zero, tokens = np.zeros(1, np.int64), np.array([num_tokens], np.int64)
    return StepBatch(
        num_prefill_tokens=zero, num_decode_tokens=tokens, decode_context_tokens=np.full(1, num_seqs * 2048),
        prefill_pairs=zero, num_prefill_seqs=zero, prefill_context_tokens=zero,
    )  # fmt: skip


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-397B-A17B"])
def test_a_pass_is_the_model_s_own_layer_with_head_and_projection(model: str) -> None:
    """By difference: a model with one layer more, its products of both inputs and a head beside it."""
    shape = read_model_config(model)
    drafter = mtp_drafter(shape)
    assert drafter is not None
    peak = peak_times(drafter.one_draft(8), H200, tp=8)
    joining = 2 * shape.hidden_size**2 * (1 if drafter.splits_joining else 8)
    whole = [peak_times(shape, H200, tp=8)]
    more = replace(
        shape,
        num_layers=shape.num_layers + 1,
        num_moe_layers=shape.num_moe_layers + 1,
        mixers=(*shape.mixers, drafter.shape.mixers[0]),
        other_parameters=shape.other_parameters + joining,
    )
    whole.append(peak_times(more, H200, tp=8))
    for name in ("matmul", "weights", "decode_entry", "kv_entry", "expert_matmul", "all_reduce"):
        assert getattr(peak, name) == pytest.approx(
            getattr(whole[1], name) - getattr(whole[0], name), rel=1e-6
        )
    assert (peak.head_weights, peak.num_layers) == (whole[0].head_weights, 1)


def test_the_first_pass_has_the_step_s_tokens_and_the_others_one_of_each_request() -> None:
    drafter = mtp_drafter(read_model_config("deepseek-ai/DeepSeek-V3"))
    assert drafter is not None
    once = float(passes_us(drafter, H200, (32,), num_drafts=1, tp=8)[0])
    model = Roofline(
        peak=peak_times(drafter.one_draft(8), H200, tp=8),
        step_us=0,
        sequence_us=0,
        cpu_step_us=0,
        cpu_sequence_us=0,
    )
    took = [float(model.step_table().durations(decoding(n, 32))[0]) for n in (32, 64, 128)]
    assert once == pytest.approx(took[1])
    three = float(passes_us(drafter, H200, (32,), num_drafts=3, tp=8)[0])
    assert three == pytest.approx((took[2] + 2 * took[0]) / 3)


def step_us(shape: ModelShape, gpu: str, num_seqs: int, num_tokens: int) -> float:
    model = Roofline(peak=peak_times(shape, find_gpu(gpu), tp=8))
    return float(model.step_table().durations(decoding(num_tokens, num_seqs))[0])


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("deepseek-ai/DeepSeek-V3", "H200"),
        ("Qwen/Qwen3.5-397B-A17B", "H200"),
        ("zai-org/GLM-5", "B200"),
        ("deepseek-ai/DeepSeek-V4-Pro", "B200"),
    ],
)
def test_one_number_is_off_by_little_of_a_step(model: str, gpu: str) -> None:
    """One draft: by 3 % at most of a step with 1 to 256 requests; three: by 7 %, of one alone."""
    shape = read_model_config(model)
    drafter = mtp_drafter(shape)
    assert drafter is not None
    for number, most in ((1, 0.03), (3, 0.075)):
        told = {"num_drafts": number, "tp": 8}
        one = draft_us(drafter, find_gpu(gpu), max_num_seqs=256, **told)
        for size, exact in zip(
            batches(256), passes_us(drafter, find_gpu(gpu), batches(256), **told), strict=True
        ):
            whole = step_us(shape, gpu, size, size * (1 + number)) + number * float(exact)
            assert abs(one - exact) * number / whole < most


# -- in a twin ------------------------------------------------------------------------------------------------

DRAFTS = "num_speculative_tokens: 2, synthetic_acceptance_rates: [0.7], use_eagle: true"


def twin(folder: Path, engine: str, *, model: str = LLAMA, latency: str = "roofline") -> TwinConfig:
    path = folder / "twin.yaml"
    path.write_text(
        f"engine: {{{DRAFTS}{engine}}}\nhardware: {{gpu: H200, tp: 8}}\n"
        f"latency: {{model: {latency}, model_config: {model}}}\n"
    )
    return load_config(path)


@pytest.mark.parametrize("latency", ["roofline", "physics"])
def test_a_twin_s_drafts_take_the_time_of_its_mtp_layers(tmp_path: Path, latency: str) -> None:
    found = twin(tmp_path, ", speculative_method: mtp", model="deepseek-ai/DeepSeek-V3", latency=latency)
    drafter = mtp_drafter(read_model_config("deepseek-ai/DeepSeek-V3"))
    assert drafter is not None
    seqs = found.engine.max_num_seqs
    assert found.engine.draft_us == draft_us(drafter, H200, num_drafts=2, max_num_seqs=seqs, tp=8) > 0
    assert not any("drafting takes no time" in note for note in found.notes)
    assert any("µs a draft, the roofline of the MTP layers" in note for note in found.notes)
    own = twin(tmp_path, ", speculative_method: mtp, draft_us: 7", model="deepseek-ai/DeepSeek-V3")
    assert own.engine.draft_us == 7


def test_a_head_that_is_named_counts_and_one_that_is_not_is_told(tmp_path: Path) -> None:
    written(tmp_path, HEAD, "head.json")
    named = twin(tmp_path, ", speculative_method: eagle, speculative_model: head.json")
    silent = twin(tmp_path, ", speculative_method: eagle")
    assert named.engine.num_gpu_blocks < silent.engine.num_gpu_blocks
    assert named.engine.draft_us > 0 == silent.engine.draft_us
    assert any("are not counted" in note for note in silent.notes)
    assert not any("are not counted" in note for note in named.notes)
    given = twin(tmp_path, ", speculative_method: eagle, num_gpu_blocks: 1000")
    assert not any("are not counted" in note for note in given.notes)


def test_a_head_without_its_method_or_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path, HEAD, "head.json")
    with pytest.raises(
        ConfigError, match=r"speculative_model: got head\.json, expected speculative_method eagle"
    ):
        twin(tmp_path, ", speculative_model: head.json")
    at = r"engine\.speculative_model: .*got nothing at nowhere.*twin\.yaml:1\)"
    with pytest.raises(ConfigError, match=at):
        twin(tmp_path, ", speculative_method: eagle3, speculative_model: nowhere")


def test_a_file_that_says_0_drafts_has_none(tmp_path: Path) -> None:
    """So that ``--set engine.num_speculative_tokens=0,3`` compares a server with and without them."""
    written(tmp_path, HEAD, "head.json")
    path = tmp_path / "twin.yaml"
    keys = "synthetic_acceptance_rates: [0.7], use_eagle: true, num_lookahead_tokens: 2, speculative_method: eagle, "

    def found(number: str, more: str = "") -> TwinConfig:
        path.write_text(
            f"engine: {{{number}{keys}speculative_model: head.json{more}}}\nhardware: {{gpu: H200}}\n"
            f"latency: {{model: roofline, model_config: {LLAMA}}}\n"
        )
        return load_config(path)

    off = found("num_speculative_tokens: 0, ")
    path.write_text(f"hardware: {{gpu: H200}}\nlatency: {{model: roofline, model_config: {LLAMA}}}\n")
    assert off.engine == load_config(path).engine
    told = [note for note in off.notes if "count for nothing" in note]
    assert len(told) == 1
    assert "use_eagle, speculative_method, speculative_model" in told[0]
    marked = ", kv_cache_groups: [{kind: full, is_eagle_group: true}, {kind: sliding, window: 512}]"
    groups = found("num_speculative_tokens: 0, ", f"{marked}, num_gpu_blocks: 100").engine.kv_cache_groups
    assert [group.is_eagle_group for group in groups] == [False, False]
    with pytest.raises(ConfigError, match="with num_speculative_tokens 0, expected none"):
        found("")


@pytest.mark.parametrize(
    ("model", "is_told"), [("Qwen/Qwen3-0.6B", True), ("meta-llama/Llama-3.2-1B", False)]
)
def test_a_drafting_model_with_another_vocabulary_is_told(model: str, is_told: bool, tmp_path: Path) -> None:
    found = twin(tmp_path, f", speculative_method: draft_model, speculative_model: {model}")
    assert any("151,936 tokens" in note and "heterogeneous" in note for note in found.notes) is is_told


def test_a_head_beside_no_model_is_told(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        f"engine: {{{DRAFTS}, speculative_method: eagle, speculative_model: head.json}}\n{BLACKBOX}"
    )
    told = [note for note in load_config(path).notes if "speculative_model" in note]
    assert told == [
        "engine.speculative_model counts for nothing: latency.model_config names no model beside it"
    ]
