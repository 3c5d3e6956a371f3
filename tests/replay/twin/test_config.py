from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.console.twins import check_starts
from replay.twin.config_keys import all_keys, engine_keys
from replay.twin.config_read import load_config
from replay.twin.config_write import coefficients_of, dump_config
from replay.twin.keys.latency_keys import EXTENDED_MEANINGS
from replay.twin.twin_config import TwinConfig
from sim.config import UNBOUNDED, EngineConfig
from sim.latency import Blackbox, Extended
from tests.fuzz.twin_files import twins
from traces.errors import ConfigError

ROOT = Path(__file__).parents[3]
COEFFICIENTS = "{alpha0: 8000, alpha1: 1.0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}"
LATENCY = f"latency: {{model: blackbox, coefficients: {COEFFICIENTS}}}\n"


def load(tmp_path: Path, text: str) -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(text)
    return load_config(path)


def test_the_example_of_the_contract_is_read_key_by_key(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f"""\
vllm_version: "0.32.0"
compatibility: vllm
engine:
  max_num_seqs: 256
  max_num_batched_tokens: 2048
  num_gpu_blocks: 2588
  block_size: 16
  max_model_len: 32768
  enable_prefix_caching: false
  enable_chunked_prefill: true
  long_prefill_token_threshold: 0
  long_prefill_token_threshold_adaptive: false
  scheduler_reserve_full_isl: true
  watermark: 0.01
  scheduling_policy: priority
  async_scheduling: false
  frontend: none
{LATENCY}seed: 7
""",
    )
    assert config.engine == EngineConfig(
        num_gpu_blocks=2588,
        enable_prefix_caching=False,
        watermark=0.01,
        scheduling_policy="priority",
        async_scheduling=False,
        frontend="none",
    )
    assert config.latency == Blackbox(alpha0=8000, alpha1=1, alpha2=0, beta0=11000, beta1=40, beta2=41)
    assert (config.seed, config.vllm_version, config.compatibility) == (7, "0.32.0", "vllm")
    assert config.notes == ()  # 2588 blocks of 16 hold 41,392 tokens: one sequence of 32,768 fits


def test_without_an_engine_section_vllms_defaults_hold_and_the_unbounded_cache_is_said(
    tmp_path: Path,
) -> None:
    config = load(tmp_path, LATENCY)
    assert config.engine == EngineConfig()
    assert config.notes == (
        "not in engine: max_num_seqs 256, max_num_batched_tokens 2048, max_model_len 32768 assumed; vLLM goes by the "
        "GPU and the model (hardware, latency.model_config)",
        "engine.num_gpu_blocks is absent: the KV cache is taken as unbounded",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine: {max_num_seqs: 0}\n", "engine.max_num_seqs: got 0, expected an integer >= 1 (FILE:1)"),
        ("engine:\n  max_num_seqs: 2.5\n", "engine.max_num_seqs: got 2.5, expected an integer >= 1 (FILE:2)"),
        ("engine:\n  block_size: '16'\n", 'engine.block_size: got "16", expected an integer >= 1 (FILE:2)'),
        ("engine:\n  block_size: true\n", "engine.block_size: got true, expected an integer >= 1 (FILE:2)"),
        ("engine:\n  block_size: 0x10\n", 'engine.block_size: got "0x10", expected an integer >= 1 (FILE:2)'),
        ("engine:\n  block_size:\n", "engine.block_size: got nothing, expected an integer >= 1 (FILE:2)"),
        ("engine:\n  block_size: [1]\n", "engine.block_size: got a list, expected an integer >= 1 (FILE:2)"),
        ("engine: {num_gpu_blocks: 0}\n", "engine.num_gpu_blocks: got 0, expected an integer >= 2 (FILE:1)"),
        ("engine: {watermark: 1}\n", "engine.watermark: got 1.0, expected a fraction in [0, 1) (FILE:1)"),
        ("engine: {watermark: x}\n", 'engine.watermark: got "x", expected a fraction in [0, 1) (FILE:1)'),
        (
            "engine: {async_scheduling: on}\n",
            'engine.async_scheduling: got "on", expected true or false (FILE:1)',
        ),
        ("engine: 3\n", "engine: got 3, expected a mapping (FILE:1)"),
        (
            "engine: {max_num_seq: 3}\n",
            "engine.max_num_seq: unknown key, did you mean engine.max_num_seqs? (FILE:1)",
        ),
        (
            "engine: {total_kv_blocks: 3}\n",
            "engine.total_kv_blocks: unknown key, did you mean engine.num_gpu_blocks? (FILE:1)",
        ),
        ("block-size: 3\n", "block-size: unknown key, did you mean engine.block_size? (FILE:1)"),
        ("sed: 3\n", "sed: unknown key, did you mean seed? (FILE:1)"),
        ("seed: -1\n", "seed: got -1, expected an integer >= 0 (FILE:1)"),
        ("seed: 1\nseed: 2\n", "seed: got the key twice, expected it once (FILE:2)"),
        (
            "hardware: {gpus: H100}\n",
            "hardware.gpus: unknown key, did you mean hardware.gpu? (FILE:1)",
        ),
        (
            "cluster: {instances: 2}\n",
            "cluster: got one, expected a single engine here: run, replay, capacity, sweep, tune and serve simulate "
            "clusters (FILE:1)",
        ),
        (
            "compatibility: blis\nengine: {async_scheduling: true}\n",
            "engine.async_scheduling: got true with compatibility blis, expected false: it has none (FILE:2)",
        ),
        (
            "engine: {num_speculative_tokens: 2, synthetic_acceptance_rates: [0.9, high]}\n",
            'engine.synthetic_acceptance_rates: got "high", expected numbers in [0, 1] (FILE:1)',
        ),
        (
            "engine: {num_speculative_tokens: 2, synthetic_acceptance_rates: [0.5, 0.9]}\n",
            "engine.synthetic_acceptance_rates: got [0.5, 0.9], expected 2 non-increasing numbers in [0, 1], or one "
            "(FILE:1)",
        ),
        ("compatibility: vidur\n", 'compatibility: got "vidur", expected one of vllm, blis (FILE:1)'),
        ("engine: {max_num_seqs: 1\n", None),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, message: str | None) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(text + LATENCY)
    with pytest.raises(ConfigError) as caught:
        load_config(path, allows_cluster=False)
    assert caught.value.exit_code == 2
    if message is None:
        assert str(caught.value).startswith("YAML: got ")
        assert str(caught.value).endswith(f"({path}:2)")
    else:
        assert str(caught.value) == message.replace("FILE", str(path))


def test_an_unknown_scheduling_policy_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'scheduling_policy: got "lifo", expected one of fcfs, priority'):
        load(tmp_path, "engine: {scheduling_policy: lifo}\n" + LATENCY)


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        ("", r"^file: got nothing in it, expected a TWIN.yaml"),
        ("latency: {model: rooflines}", r'^latency\.model: got "rooflines", expected one of blackbox'),
        ("latency: {coefficients: {}}", r"^latency\.model: got nothing, expected one of blackbox, extended"),
        ("latency: {model: blackbox}", r"^latency: got neither, expected either coefficients or defaults"),
        (
            f"latency: {{model: blackbox, defaults: {{}}, coefficients: {COEFFICIENTS}}}",
            r"^latency\.coefficients: cannot be combined with defaults",
        ),
        (
            "latency: {model: blackbox, coefficients: {alpha0: 1}}",
            r"coefficients\.alpha1: got nothing, expected a",
        ),
        ("latency: {model: blackbox, coefficients: {gamma: 1}}", r"coefficients\.gamma: unknown key"),
        (
            LATENCY.replace("8000", "-1"),
            r"coefficients\.alpha0: got -1, expected a number of microseconds >= 0",
        ),
        (LATENCY.replace("8000", ".inf"), r"coefficients\.alpha0: got \.inf, expected a number"),
        (LATENCY.replace("alpha1: 1.0", "alpha1: 1e13"), r"coefficients\.alpha1: got 1e13, expected 0 to "),
        (LATENCY.replace("8000", "2e9"), r"coefficients\.alpha0: got 2e9, expected 0 to 1,000,000,000"),
        ("latency: {model: blackbox, defaults: {gpu: H100}}", r"defaults\.model: got nothing, expected text"),
        ("latency: {model: blackbox, defaults: {model: x, gpu: H100}}", r"got x on H100 tp=1, .*; nearest: "),
    ],
)
def test_a_latency_that_cannot_be_is_refused(tmp_path: Path, latency: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, latency)


def test_coefficients_are_taken_exactly_as_written(tmp_path: Path) -> None:
    text = LATENCY.replace("11000", "'11000.000001'").replace("alpha1: 1.0", "alpha1: 1e-3")
    config = load(tmp_path, text)
    assert coefficients_of(config.latency)["beta0"] == Decimal("11000.000001")
    assert config.latency.queue_delay_us(np.array([1_000_000])).tolist() == [9000]


def test_defaults_are_looked_up_and_their_trust_is_said(tmp_path: Path) -> None:
    config = load(
        tmp_path, "latency: {model: blackbox, defaults: {model: qwen/qwen3-14b, gpu: H100, tp: 1}}\n"
    )
    assert config.engine.num_gpu_blocks == 17600
    assert "weakly identified" in config.notes[0]
    assert "17600 taken from the entry" in config.notes[-1]


def test_a_block_size_other_than_the_entrys_leaves_the_cache_unbounded(tmp_path: Path) -> None:
    text = (
        "engine: {block_size: 32}\nlatency: {model: blackbox, defaults: {model: qwen/qwen3-14b, gpu: H100}}\n"
    )
    assert load(tmp_path, text).engine.num_gpu_blocks == UNBOUNDED


def test_a_defaults_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    shipped = (ROOT / "replay" / "twin" / "defaults.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(shipped.replace("beta0: 26595.2782", "beta0: 5"))
    wanted = "{model: codellama/codellama-34b-instruct-hf, gpu: H100}"
    config = load(tmp_path, f"latency: {{model: blackbox, defaults: {wanted}, defaults_file: mine.yaml}}\n")
    assert config.latency.beta0 == 5


def test_a_missing_file_and_one_that_is_no_mapping_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^file: got nothing at this path, expected a YAML file \(.*x\.yaml\)$"
    ):
        load_config(tmp_path / "x.yaml")
    with pytest.raises(
        ConfigError, match=r"^YAML: got a list, expected a mapping of keys \(.*twin\.yaml:1\)$"
    ):
        load(tmp_path, "- a\n")
    (tmp_path / "twin.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bytes that are not UTF-8"):
        load_config(tmp_path / "twin.yaml")


def test_a_version_brings_its_scheduling_rules_and_its_defaults(tmp_path: Path) -> None:
    old = load(tmp_path, "vllm_version: 0.13.0\n" + LATENCY).engine
    assert (old.vllm_version, old.async_scheduling, old.scheduler_reserve_full_isl) == (
        "0.13.0",
        False,
        False,
    )
    said = load(tmp_path, "vllm_version: 0.19.1\nengine: {async_scheduling: false}\n" + LATENCY).engine
    assert (said.async_scheduling, said.scheduler_reserve_full_isl) == (False, True)
    assert load(tmp_path, "vllm_version: 0.33.0\n" + LATENCY).vllm_version == "0.33.0"


@pytest.mark.parametrize("version", ["0.11.0", "0.34.0", "latest"])
def test_a_version_whose_rules_are_not_known_is_refused_with_the_range(tmp_path: Path, version: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^vllm_version: got {version}, expected 0\.12 to 0\.33 \(.*:1\)$"
    ):
        load(tmp_path, f"vllm_version: {version}\n" + LATENCY)


def test_a_setting_that_the_version_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^engine\.watermark: got 0\.1, expected 0: vLLM 0\.23\.0 does not have it"
    ):
        load(tmp_path, "vllm_version: 0.23.0\nengine: {watermark: 0.1}\n" + LATENCY)


def test_more_sequences_than_blocks_for_their_states_do_not_start(tmp_path: Path) -> None:
    """As vLLM does from 0.20 on; a cache without states has no such limit."""
    text = (
        'vllm_version: "VERSION"\nengine: {max_num_seqs: SEQS, num_gpu_blocks: 300, max_model_len: 4096, '
        "kv_cache_groups: [{kind: full}, {kind: KIND}]}\n" + LATENCY
    )

    def fault(version: str, seqs: int, kind: str) -> str:
        written = text.replace("VERSION", version).replace("SEQS", str(seqs)).replace("KIND", kind)
        return " ".join(load(tmp_path, written).notes)

    state = "state, mode: align"
    assert "engine.max_num_seqs 301: more than the 300 blocks" in fault("0.32.0", 301, state)
    assert "300 blocks" not in fault("0.32.0", 300, state)
    assert "300 blocks" not in fault("0.18.0", 301, state)
    assert "300 blocks" not in fault("0.32.0", 301, "sliding, window: 64")


def test_a_cache_below_one_longest_sequence_is_said_but_not_refused(tmp_path: Path) -> None:
    small = (
        "engine: {max_num_seqs: 4, max_num_batched_tokens: 64, num_gpu_blocks: 17, max_model_len: LEN}\n"
        + LATENCY
    )
    config = load(tmp_path, small.replace("LEN", "257"))
    assert config.notes == (
        "engine.num_gpu_blocks 17: the KV cache holds 256 tokens, less than one sequence of max_model_len "
        "257; vLLM would refuse to start",
    )
    assert load(tmp_path, small.replace("LEN", "256")).notes == ()


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        (
            "enable_chunked_prefill: false, max_num_batched_tokens: 511, max_model_len: 512",
            "one sequence of max_model_len 512",
        ),
        ("enable_chunked_prefill: false, max_num_batched_tokens: 512, max_model_len: 512", ""),
        ("max_num_batched_tokens: 511, max_model_len: 512", ""),
        (
            "enable_chunked_prefill: false, max_num_batched_tokens: 511",
            "",
        ),  # how long a sequence may be is assumed
        ("max_num_batched_tokens: 7, max_num_seqs: 8", "less than max_num_seqs 8"),
        ("max_num_batched_tokens: 8, max_num_seqs: 8", ""),
        ("max_num_batched_tokens: 7, max_num_seqs: 8, batching: orca", ""),
    ],
)
def test_flags_that_vllm_refuses_are_refused_unless_asked_for(
    engine: str, fault: str, tmp_path: Path
) -> None:
    config = load(tmp_path, f"engine: {{{engine}}}\n{LATENCY}")
    if not fault:
        assert config.will_not_start == ()
        check_starts(config)
        return
    assert len(config.will_not_start) == 1
    assert fault in config.will_not_start[0]
    assert config.will_not_start[0] in config.notes
    with pytest.raises(
        ConfigError, match=rf"{fault}; vLLM would refuse .*Set a larger engine.max_num_batched_tokens"
    ):
        check_starts(config)


def test_another_scheduler_has_neither_async_scheduling_nor_a_prefix_cache_unless_asked(
    tmp_path: Path,
) -> None:
    config = load(tmp_path, "engine: {batching: sarathi}\n" + LATENCY)
    assert config.engine.batching == "sarathi"
    assert not config.engine.async_scheduling
    assert not config.engine.enable_prefix_caching
    assert load(tmp_path, dump_config(config)) == config
    with pytest.raises(ConfigError, match=r"async_scheduling: got true with batching orca, expected false"):
        load(tmp_path, "engine: {batching: orca, async_scheduling: true}\n" + LATENCY)


@settings(deadline=None)
@given(
    engine=st.builds(
        EngineConfig,
        max_num_seqs=st.integers(1, 10**6),
        num_gpu_blocks=st.integers(2, 10**6) | st.just(UNBOUNDED),
        watermark=st.floats(0, 1, exclude_max=True),
        enable_prefix_caching=st.booleans(),
        scheduling_policy=st.sampled_from(["fcfs", "priority"]),
        vllm_version=st.sampled_from(["0.32.0", "0.24.1", "0.33", "v0.30.0rc1"]),
    ),
    coefficients=st.lists(st.decimals(0, 10**6, places=6), min_size=6, max_size=6),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_configuration_written_is_the_configuration_read(
    tmp_path_factory: pytest.TempPathFactory,
    engine: EngineConfig,
    coefficients: list[object],
    seed: int,
) -> None:
    names = ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2")
    latency = Blackbox(**dict(zip(names, coefficients, strict=True)))
    config = TwinConfig(engine=engine, latency=latency, seed=seed)
    path = tmp_path_factory.getbasetemp() / "round.yaml"
    path.write_text(dump_config(config))
    assert load_config(path) == config


def test_a_fit_can_replace_the_latency_and_write_the_result(tmp_path: Path) -> None:
    config = load(tmp_path, LATENCY)
    fitted = replace(config, latency=Blackbox(alpha0=1.25, beta0="3", beta1=0.1))
    written = yaml.safe_load(dump_config(fitted))["latency"]["coefficients"]
    assert written == {"alpha0": 1.25, "alpha1": 0, "alpha2": 0, "beta0": 3, "beta1": 0.1, "beta2": 0}


def test_drafts_that_nobody_measured_are_not_written_as_free(tmp_path: Path) -> None:
    written = dump_config(load(tmp_path, LATENCY))
    assert "draft_us" not in written
    drafting = written.replace("num_speculative_tokens: 0", "num_speculative_tokens: 3")
    later = load(
        tmp_path, drafting.replace("synthetic_acceptance_rates: []", "synthetic_acceptance_rates: [0.5]")
    )
    assert "draft_us: 0.0" in dump_config(later)


def test_the_extended_model_takes_more_coefficients_and_the_seed(tmp_path: Path) -> None:
    more = "beta3: 0.0125, beta4: 1e-7, floor: 4000, kappa: 0.3, tau_s: 2.5, sigma: 0.05}}"
    text = LATENCY.replace("blackbox", "extended").replace("}}", f", {more}") + "seed: 9\n"
    config = load(tmp_path, text)
    assert config.latency == Extended(
        **{name: getattr(load(tmp_path, LATENCY).latency, name) for name in ("alpha0", "alpha1", "alpha2")},
        **{"beta0": 11000, "beta1": 40, "beta2": 41, "beta3": 0.0125, "beta4": 1e-7, "floor": 4000.0},
        **{"kappa": 0.3, "tau_s": 2.5, "sigma": 0.05, "seed": 9},
    )
    assert load(tmp_path, dump_config(config)) == config
    with pytest.raises(ConfigError, match=r"coefficients\.beta3: unknown key"):
        load(tmp_path, LATENCY.replace("}}", ", beta3: 1}}"))


def test_every_field_is_explained() -> None:
    assert all(key.meaning for key in engine_keys())
    own = {field.name for field in fields(Extended)} - {field.name for field in fields(Blackbox)}
    assert set(EXTENDED_MEANINGS) == own - {"seed", "tiles"}  # tiles stand beside the coefficients


def test_every_documented_key_is_accepted(tmp_path: Path) -> None:
    """A key of the table that the reader refused would make this fail at that key."""
    leaves = [key for key in all_keys() if key.path.startswith("engine.")]
    limits = {
        name: getattr(EngineConfig(), name)
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "pipeline_parallel_size")
    }
    values = {"num_gpu_blocks": "9000", "synthetic_acceptance_rates": "[]", **limits}
    values["kv_offloading"] = EngineConfig().kv_offloading
    of_images = (
        "draft_us",
        "launch_us",
        "encoder_step_us",
        "encoder_token_us",
        "encoder_token_pair_us",
        "encoder_data_parallel_size",
    )
    values |= {name: getattr(EngineConfig(), name) for name in of_images}
    values["disable_chunked_mm_input"] = "false"
    values["kv_cache_groups"] = "[{kind: full}]"
    values["prefix_cache_retention_interval"] = values["prefix_match_unit"] = "none"
    engine = ", ".join(
        f"{name}: {values.get(name, key.default)}"
        for key in leaves
        for name in [key.path.removeprefix("engine.")]
        if not name.startswith("kv_cache_groups.")
    )
    assert load(tmp_path, f"engine: {{{engine}}}\n{LATENCY}").engine == EngineConfig(num_gpu_blocks=9000)


def test_the_peer_s_rules_come_without_async_scheduling(tmp_path: Path) -> None:
    config = load(tmp_path, f"compatibility: blis\n{LATENCY}")
    assert config.compatibility == "blis"
    assert config.engine == EngineConfig(compatibility="blis", async_scheduling=False)
    assert load(tmp_path, dump_config(config)) == config


@pytest.mark.parametrize(("text", "rates"), [("0.5", (0.5,)), ("[0.9, 0.4, 0]", (0.9, 0.4, 0.0))])
def test_acceptance_rates_are_one_number_or_a_list_and_take_the_file_s_seed(
    tmp_path: Path, text: str, rates: tuple[float, ...]
) -> None:
    section = f"engine: {{num_speculative_tokens: 3, synthetic_acceptance_rates: {text}}}\nseed: 9\n"
    config = load(tmp_path, section + LATENCY)
    assert config.engine.synthetic_acceptance_rates == rates
    assert config.engine.seed == 9
    assert load(tmp_path, dump_config(config)) == config


@pytest.mark.parametrize("files", twins(), ids=lambda files: files["twin.yaml"][:60].decode())
def test_an_engine_is_built_once_as_the_file_has_it_and_once_as_it_runs(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    all_keys()  # asks the engine for bounds, once
    built: list[EngineConfig] = []
    check = EngineConfig.__post_init__

    def counted(engine: EngineConfig) -> None:
        built.append(engine)
        check(engine)

    monkeypatch.setattr(EngineConfig, "__post_init__", counted)
    config = load_config(tmp_path / "twin.yaml")
    assert 0 < len(built) <= 2 * len(config.cluster.pools)


def test_an_assumed_flag_is_written_as_a_comment(tmp_path: Path) -> None:
    config = TwinConfig(engine=EngineConfig(max_num_seqs=7, block_size=32), latency=Blackbox(beta0=5000))
    text = dump_config(config, assumed=("max_num_seqs",))
    assert "  # max_num_seqs: 7  (assumed)\n  max_num_batched_tokens:" in text
    (tmp_path / "twin.yaml").write_text(text)
    read = load_config(tmp_path / "twin.yaml").engine
    assert (read.max_num_seqs, read.block_size) == (256, 32)
