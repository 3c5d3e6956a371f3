"""``engine.kv_cache_groups``: read with the line of each fault, written back, per pool, and with ``--set``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.twin.config_read import load_config
from replay.twin.config_write import config_digest, dump_config
from replay.twin.keys.overlay import Setting
from replay.twin.start.from_serve import start_from_serve, twin_text
from replay.twin.twin_config import TwinConfig
from sim import DEFAULT_VERSION, KVCacheGroup
from traces import ConfigError

LATENCY = "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 4, beta2: 1}}\n"
FULL, SLIDING = KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=128)
TWO = "[{kind: full}, {kind: sliding, window: 128}]"


def twin(tmp_path: Path, engine: str, *settings: Setting, more: str = "") -> TwinConfig:
    file = tmp_path / "twin.yaml"
    file.write_text(f"engine:\n{engine}\n{LATENCY}{more}")
    return load_config(file, settings=settings)


def test_groups_are_read_and_written_back(tmp_path: Path) -> None:
    groups = "[{kind: full, block_size: 32}, {kind: sliding, window: 128}, {kind: sliding, window: 64, block_size: 8}]"
    saved = "{kind: state, mode: align, num_prefill_checkpoint_blocks: 1, prefill_checkpoint_alignment: 16}"
    chunked = "[{kind: full}, {kind: chunked, chunk: 8192}, {kind: state, mode: align}]"
    for text in (groups, chunked, TWO, f"[{{kind: full}}, {saved}]"):
        found = twin(tmp_path, f"  kv_cache_groups: {text}")
        assert len(found.engine.kv_cache_groups) == text.count("kind")
        (tmp_path / "again.yaml").write_text(dump_config(found))
        assert load_config(tmp_path / "again.yaml") == found


@pytest.mark.parametrize(("caches", "num_faults"), [("true", 1), ("false", 0)])
def test_states_that_are_cached_need_chunked_prefill(tmp_path: Path, caches: str, num_faults: int) -> None:
    settings = f"enable_prefix_caching: {caches}, enable_chunked_prefill: false, max_model_len: 2048"
    engine = f"  {{{settings}, num_gpu_blocks: 900, kv_cache_groups: [{{kind: full}}, {{kind: state}}]}}"
    found = twin(tmp_path, engine).will_not_start
    assert ["need chunked prefill; vLLM would refuse" in fault for fault in found] == [True] * num_faults


def test_a_tier_without_a_size_is_told(tmp_path: Path) -> None:
    told = twin(tmp_path, "  kv_offloading: native\n  kv_load_us_per_block: 40").notes
    line = "engine.kv_offloading native, engine.kv_load_us_per_block 40.0: nothing is offloaded without "
    assert [note.startswith(line) for note in told if "offloaded" in note] == [True]
    assert not any("offloaded" in note for note in twin(tmp_path, "  num_gpu_blocks: 900").notes)


def test_a_state_without_a_mode_follows_prefix_caching(tmp_path: Path) -> None:
    for caching, mode in (("true", "align"), ("false", "none")):
        engine = f"  enable_prefix_caching: {caching}\n  kv_cache_groups: [{{kind: full}}, {{kind: state}}]"
        assert twin(tmp_path, engine).engine.kv_cache_groups[1].mode == mode


def test_one_full_group_is_no_group_and_others_are_in_the_digest(tmp_path: Path) -> None:
    plain, one = twin(tmp_path, "  block_size: 16"), twin(tmp_path, "  kv_cache_groups: [{kind: full}]")
    two = twin(tmp_path, f"  kv_cache_groups: {TWO}")
    assert plain.engine == one.engine
    assert config_digest(plain) == config_digest(one) != config_digest(two)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("[{kind: wide}]", r'kv_cache_groups\[0\]\.kind: got "wide", expected one of full, sliding, chunked'),
        ("[{window: 8}]", r"kv_cache_groups\[0\]\.kind: got nothing, expected one of full"),
        ("[{kind: sliding, window: 0}]", r"kv_cache_groups\[0\]\.window: got 0, expected an integer >= 1"),
        ("[{kind: sliding}]", r"kv_cache_groups\[0\]\.window: got nothing, expected an integer from 1"),
        ("[{kind: full, window: 8}]", r"window: got 8, expected none: a full group has no window"),
        ("[{kind: full, chunk: 8}]", r"chunk: got 8, expected none: a full group has no chunk"),
        ("[{kind: full, mode: align}]", r"mode: got align, expected none: only a state group has one"),
        (
            "[{kind: full, num_prefill_checkpoint_blocks: 1}]",
            r"num_prefill_checkpoint_blocks: got 1, expected 0: only a state group of mode align has any",
        ),
        ("[{kind: full, sinks: 8}]", r"kv_cache_groups\[0\]\.sinks: unknown key"),
        ("[{kind: full}, 3]", r"kv_cache_groups: got 3 as item 2, expected a list of mappings"),
        ("[]", r"kv_cache_groups: got none, expected a list of at least one"),
        ("4", r"kv_cache_groups: got 4, expected a list"),
        (f"[{', '.join(['{kind: full}'] * 65)}]", r"kv_cache_groups: got 65, expected at most 64"),
        (
            "[{kind: state, mode: none}]",
            r"kv_cache_groups: got a state group of mode none with enable_prefix",
        ),
        (
            "[{kind: chunked, chunk: 64}, {kind: full, block_size: 32}]",
            r"block sizes \[16, 32\] with a chunked",
        ),
    ],
)
def test_groups_that_cannot_be_are_one_line_with_file_and_line(
    tmp_path: Path, groups: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected + r".*\(.*twin\.yaml:3\)$"):
        twin(tmp_path, f"  block_size: 16\n  kv_cache_groups: {groups}")


def test_disabling_the_hybrid_manager_makes_one_full_group(tmp_path: Path) -> None:
    off = "  disable_hybrid_kv_cache_manager: true\n  kv_cache_groups: "
    assert twin(tmp_path, f"{off}{TWO}").engine.kv_cache_groups == ()
    alike = "[{kind: sliding, window: 128}]"
    assert twin(tmp_path, off + alike).engine.kv_cache_groups == (SLIDING,)
    with pytest.raises(
        ConfigError, match=r"disable_hybrid_kv_cache_manager: got true with groups of kind full, st"
    ):
        twin(tmp_path, f"{off}[{{kind: full}}, {{kind: state}}]")


def test_a_pool_has_groups_of_its_own(tmp_path: Path) -> None:
    pools = f"cluster: {{pools: [{{name: a}}, {{name: b, engine: {{kv_cache_groups: {TWO}}}}}]}}\n"
    found = twin(tmp_path, "  block_size: 16", more=pools)
    assert [pool.engine.kv_cache_groups for pool in found.cluster.pools] == [(), (FULL, SLIDING)]
    (tmp_path / "again.yaml").write_text(dump_config(found))
    assert load_config(tmp_path / "again.yaml") == found


def test_groups_can_be_set_from_the_command_line(tmp_path: Path) -> None:
    engine = f"  kv_cache_groups: {TWO}"
    whole = twin(tmp_path, engine, Setting("engine.kv_cache_groups", "[{kind: full}]"))
    assert whole.engine.kv_cache_groups == ()
    one = twin(tmp_path, engine, Setting("engine.kv_cache_groups[1].window", "64"))
    assert one.engine.kv_cache_groups[1].window == 64
    assert not one.unanswered
    with pytest.raises(ConfigError, match=r"window: got -3, expected an integer >= 1 \(--set"):
        twin(tmp_path, engine, Setting("engine.kv_cache_groups[1].window", "-3"))


DRAFTS = "  num_speculative_tokens: 2\n  synthetic_acceptance_rates: [0.7]\n  use_eagle: true\n"


def test_the_group_of_the_drafting_layers_is_read_and_written_back(tmp_path: Path) -> None:
    text = "[{kind: full, is_eagle_group: true}, {kind: sliding, window: 128}]"
    found = twin(tmp_path, f"{DRAFTS}  kv_cache_groups: {text}")
    assert found.engine.eagle_groups == (0,)
    assert text in dump_config(found)
    with pytest.raises(ConfigError, match=r"is_eagle_group: got true with use_eagle false.*twin\.yaml:2\)$"):
        twin(tmp_path, f"  kv_cache_groups: {text}")


def of_model(tmp_path: Path, engine: str, model: str, *, version: str = DEFAULT_VERSION) -> TwinConfig:
    file = tmp_path / "twin.yaml"
    file.write_text(
        f"engine:\n{engine}\n"
        + f"hardware: {{gpu: H200, tp: 8}}\nlatency: {{model: roofline, model_config: {model}}}\n"
        + f"vllm_version: {version}\n"
    )
    return load_config(file)


@pytest.mark.parametrize(
    ("model", "marked", "number"),
    [("XiaomiMiMo/MiMo-V2-Flash", "sliding", 6), ("Qwen/Qwen3.5-397B-A17B", "full", 4)],
)
def test_mtp_layers_are_dealt_out_with_the_model_s(
    tmp_path: Path, model: str, marked: str, number: int
) -> None:
    mtp = of_model(tmp_path, f"{DRAFTS}  speculative_method: mtp", model)
    groups = mtp.engine.kv_cache_groups
    assert ([group.kind for group in groups if group.is_eagle_group], len(groups)) == ([marked], number)
    kept = of_model(tmp_path, DRAFTS.replace("true", "false") + "  speculative_method: mtp", model)
    assert not any(group.is_eagle_group for group in kept.engine.kv_cache_groups)
    plain = of_model(tmp_path, DRAFTS, model)
    assert mtp.engine.num_gpu_blocks < plain.engine.num_gpu_blocks  # their weights alone take room
    assert any("1 layer in weights and KV cache" in note for note in mtp.notes)


def test_mtp_of_a_model_whose_layers_are_not_known_is_refused(tmp_path: Path) -> None:
    for model in ("stepfun-ai/Step-3.7-Flash", "meta-llama/Llama-3.1-8B"):
        with pytest.raises(ConfigError, match=r"engine\.speculative_method: got mtp for .*twin\.yaml:5\)$"):
            of_model(tmp_path, f"{DRAFTS}  speculative_method: mtp", model)
    with pytest.raises(ConfigError, match="speculative_method: got mtp without drafts"):
        of_model(tmp_path, "  speculative_method: mtp", "meta-llama/Llama-3.1-8B")


def test_a_method_that_is_not_known_is_told_before_the_rates_that_its_drafts_lack(tmp_path: Path) -> None:
    drafts = "  num_speculative_tokens: 2\n  speculative_method: foo\n"
    with pytest.raises(
        ConfigError, match=r'speculative_method: got "foo", expected one of none, mtp, [\w, ]+ \(.*:\d+\)$'
    ):
        of_model(tmp_path, drafts, "meta-llama/Llama-3.1-8B")


def test_chunks_beside_eagle_are_one_full_group_as_vllm_makes_them(tmp_path: Path) -> None:
    model = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    found = of_model(tmp_path, DRAFTS, model)
    assert found.engine.kv_cache_groups == ()
    assert any("vLLM has no chunks beside drafts" in note for note in found.notes)
    assert of_model(tmp_path, DRAFTS.replace("true", "false"), model).engine.num_kv_cache_groups == 4


def test_the_flag_of_a_command_line_is_followed() -> None:
    text, _ = twin_text(start_from_serve("vllm serve m --disable-hybrid-kv-cache-manager"))
    assert "disable_hybrid_kv_cache_manager: true" in text


@pytest.mark.parametrize(
    ("version", "engine", "told"),
    [
        ("0.25.1", "  kv_cache_groups: [{kind: full}, {kind: state}]", "--mamba-cache-mode align"),
        ("0.28.0", "  kv_cache_groups: [{kind: full}, {kind: state}]", ""),
        ("0.25.1", f"  kv_cache_groups: {TWO}", ""),
        ("0.15.1", DRAFTS, "by the rules of vLLM 0.16"),
        ("0.16.0", DRAFTS, ""),
        ("0.33.0", DRAFTS, ""),
        (
            "0.27.0",
            f"{DRAFTS}  kv_cache_groups: [{{kind: full}}, {{kind: state}}]\n",
            "--mamba-cache-mode align|goes wrong where the end of a state's block cuts",
        ),
        ("0.33.0", f"{DRAFTS}  num_prefill_lookahead_tokens: 2\n", ""),
    ],
)
def test_a_version_s_defaults_that_are_not_simulated_are_told(
    tmp_path: Path, version: str, engine: str, told: str
) -> None:
    notes = [
        note for note in twin(tmp_path, engine, more=f"vllm_version: {version}\n").notes if version in note
    ]
    parts = told.split("|") if told else []
    assert len(notes) == len(parts)
    assert all(part in note for part, note in zip(parts, notes, strict=True))


def test_chunked_layers_keep_everything_with_versions_that_give_them_no_groups(tmp_path: Path) -> None:
    model = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    old, new = (
        of_model(tmp_path, "  block_size: 16", model, version=version) for version in ("0.13.0", "0.14.0")
    )
    assert (old.engine.num_kv_cache_groups, new.engine.num_kv_cache_groups) == (1, 4)
    assert any("vLLM has no groups of chunks in 0.13.0" in note for note in old.notes)


@pytest.mark.parametrize(("version", "is_told"), [("0.31.0", True), ("0.32.0", False), ("0.32.1", False)])
def test_packed_groups_of_another_version_are_told(tmp_path: Path, version: str, *, is_told: bool) -> None:
    found = of_model(tmp_path, "  block_size: 256", "deepseek-ai/DeepSeek-V4-Pro", version=version)
    assert any("as vLLM 0.32 deals" in note for note in found.notes) == is_told
