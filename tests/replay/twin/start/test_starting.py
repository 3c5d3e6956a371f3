from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from calibrate.latency_table import twin_for
from replay import start_twin
from replay.model.shipped_models import shipped_config
from replay.twin.config_read import load_config
from replay.twin.start.from_serve import (
    named,
    start_from_header,
    start_from_serve,
    start_from_server,
    twin_text,
)
from replay.twin.start.serve_flags import parse_serve
from replay.twin.twin_config import TwinConfig
from sim.config import EngineConfig
from traces import Header, make_trace, write_trace
from traces.errors import ConfigError
from traces.header import KVOffload, ServerInfo, SpecDecode

ALL = (
    "vllm serve org/model --max-num-seqs 128 --max-num-batched-tokens=4096 --max_model_len 8K --block-size 32 "
    "--num-gpu-blocks-override 1000 --no-enable-prefix-caching --enable-chunked-prefill "
    "--long-prefill-token-threshold 512 --scheduling-policy priority --no-async-scheduling --watermark 0.01"
)
ENGINE = EngineConfig(
    max_num_seqs=128,
    max_num_batched_tokens=4096,
    max_model_len=8192,
    block_size=32,
    num_gpu_blocks=1000,
    enable_prefix_caching=False,
    enable_chunked_prefill=True,
    long_prefill_token_threshold=512,
    scheduling_policy="priority",
    async_scheduling=False,
    watermark=0.01,
)


def loaded(text: str, folder: Path) -> TwinConfig:
    (folder / "twin.yaml").write_text(text)
    return load_config(folder / "twin.yaml")


def test_every_flag_of_the_scheduler_becomes_the_twins(tmp_path: Path) -> None:
    assert loaded(twin_text(start_from_serve(ALL))[0], tmp_path).engine == ENGINE


def test_a_command_line_without_flags_makes_a_twin_that_loads_and_says_what_it_assumes(
    tmp_path: Path,
) -> None:
    text, notes = twin_text(start_from_serve("vllm serve org/model"))
    assert loaded(text, tmp_path).engine == EngineConfig()
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "latency"):
        assert any(note.startswith(name) for note in notes)
        assert any(line.startswith(f"# {name}") for line in text.splitlines())


def test_times_that_nobody_measured_are_told_at_every_run_but_not_by_the_fit_that_replaces_them(
    tmp_path: Path,
) -> None:
    text, _ = twin_text(start_from_serve("vllm serve org/model"))
    assert any("placeholders" in note for note in loaded(text, tmp_path).notes)
    assert not any("placeholders" in note for note in loaded(text.replace("5000", "5001"), tmp_path).notes)
    assert not any(
        "placeholders" in note for note in twin_for(tmp_path / "twin.yaml", "auto", fit=True).notes
    )


def test_no_flag_is_dropped_and_no_secret_told(tmp_path: Path) -> None:
    command = "vllm serve m --new-flag 7 --enable-dbo -tp 2 --api-key s3cret -O3 --config c.yaml stray"
    text, notes = twin_text(start_from_serve(command))
    for name in (
        "--new-flag …",
        "--enable-dbo",
        "-tp 2",
        "--api-key …",
        "--config …",
        "--optimization-level …",
        "1 word behind no flag that takes them",
    ):
        assert any(note.startswith(f"{name}: ") for note in notes), name
    assert "s3cret" not in text
    loaded(text, tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "VLLM_LOGGING_LEVEL=DEBUG /opt/v/bin/vllm serve org/model --max-num-seqs 8",
        "python -m vllm.entrypoints.openai.api_server --model org/model --max-num-seqs 8",
        "docker run --gpus all image vllm serve --enable-dbo org/model --max-num-seqs 8",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.32.0 --model org/model --max-num-seqs 8",
        "podman run -v models:/models mirror.example/vllm/vllm-openai org/model --max-num-seqs 8",
        "vllm serve org/model \\\n  --max-num-seqs 8",
    ],
)
def test_what_launches_the_server_does_not_matter(command: str) -> None:
    served = parse_serve(command)
    assert (served.model, served.engine) == ("org/model", {"max_num_seqs": 8})


@pytest.mark.parametrize(
    ("written", "tokens"), [("32768", 32768), ("32k", 32000), ("32K", 32768), ("25.6k", 25600)]
)
def test_numbers_are_read_as_vllm_reads_them(written: str, tokens: int) -> None:
    assert parse_serve(f"vllm serve m --max-model-len {written}").engine == {"max_model_len": tokens}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sglang serve m", 'command: got "sglang …", in which no vLLM is started, expected vllm serve MODEL'),
        ("vllm serve", "command: got no model"),
        ("vllm serve 'm", "command: got No closing quotation"),
        ("vllm serve m --max-num-seqs many", "--max-num-seqs: got many, expected an integer"),
        ("vllm serve m --max-num-seqs", "--max-num-seqs: got nothing, expected an integer"),
        ("vllm serve m --max-num-seqs 1.5K", "--max-num-seqs: got 1.5K, expected an integer"),
        ("vllm serve m --scheduling-policy sjf", "--scheduling-policy: got sjf, expected fcfs or priority"),
        ("vllm serve m -tp 0", "-tp: got 0, expected an integer from 1 to 65,536"),
        ("vllm serve m --data-parallel-size -1", "--data-parallel-size: got -1, expected an integer"),
        ("vllm serve m --block-size 0", "block_size: got 0, expected an integer >= 1"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused_in_one_line(command: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        twin_text(start_from_serve(command))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_gpu_on_record_brings_its_latency_and_vllms_own_defaults(tmp_path: Path) -> None:
    start = start_from_serve("vllm serve codellama/codellama-34b-instruct-hf --max-num-batched-tokens 512")
    twin = loaded(twin_text(start, gpu="H100")[0], tmp_path)
    assert (twin.engine.max_num_seqs, twin.engine.max_num_batched_tokens) == (
        512,
        512,
    )  # no more seats than tokens
    assert twin.engine.max_model_len == 16384
    assert "on record" in twin.latency_reason
    with pytest.raises(ConfigError):
        twin_text(start_from_serve("vllm serve nobody/knows"), gpu="H100")


def test_a_flag_that_looks_like_a_slip_is_told_with_the_one_that_may_be_meant() -> None:
    _, notes = twin_text(
        start_from_serve("vllm serve Qwen/Qwen3-8B --max-num-sqes 3 --gpu-memory-utilisation 0.8 --seed 1")
    )
    assert "--max-num-sqes …: not in the twin, did you mean --max-num-seqs?" in notes
    assert "--gpu-memory-utilisation …: not in the twin, did you mean --gpu-memory-utilization?" in notes
    found = start_twin("vllm serve Qwen/Qwen3-8B --max-num-sqes 3")
    assert found.doubts == ("--max-num-sqes …: not in the twin, did you mean --max-num-seqs?",)


def test_a_flag_that_is_cut_short_is_the_only_one_that_begins_so_as_vllm_takes_it() -> None:
    start = start_from_serve("vllm serve Qwen/Qwen3-8B --max_num_seq 64 --no-enable-prefix-cach --max-num 3")
    assert start.engine == {"max_num_seqs": 64, "enable_prefix_caching": False}
    assert "--max_num_seq: taken for --max-num-seqs, as vLLM takes a flag that is cut short" in start.notes
    assert "--max-num …: not in the twin" in start.notes  # two begin so: vLLM refuses it
    for other in ("-q 4", "--no-max-num-seq 4"):  # no long flag; no switch
        assert not start_from_serve(f"vllm serve Qwen/Qwen3-8B {other}").engine


def test_what_sizes_the_cache_in_a_file_goes_before_the_size_on_record(tmp_path: Path) -> None:
    def blocks_with(flags: str) -> int:
        text, _ = twin_text(start_from_serve(f"vllm serve meta-llama/Llama-3.1-8B {flags}"), gpu="H100")
        return loaded(text, tmp_path).engine.num_gpu_blocks

    block_bytes = 16 * 2 * 32 * 8 * 128 * 2
    on_record = blocks_with("")
    assert blocks_with("--kv-cache-memory-bytes 20g") == 20 * 10**9 // block_bytes
    assert 0.8 * on_record < blocks_with("--gpu-memory-utilization 0.85") < 0.95 * on_record
    assert blocks_with("--kv-cache-dtype fp8") > 1.8 * on_record
    _, notes = twin_text(start_from_serve("vllm serve Qwen/Qwen3-8B --kv-cache-memory-bytes 20g"), gpu="H100")
    assert not any("num_gpu_blocks not given" in note for note in notes)


@pytest.mark.parametrize(
    ("size", "least", "most"),
    [("gpu_memory_utilization: 0.5", 20_000, 30_000), ("kv_cache_memory_bytes: 917504000", 1000, 1000)],
)
def test_an_entry_s_model_is_sized_by_the_memory_that_a_file_gives(
    tmp_path: Path, size: str, least: int, most: int
) -> None:
    entry = "{model: Qwen/Qwen2.5-7B-Instruct, gpu: H100}"
    text = f"hardware: {{gpu: H100, tp: 1, {size}}}\nlatency: {{model: blackbox, defaults: {entry}}}\n"
    assert least <= loaded(text, tmp_path).engine.num_gpu_blocks <= most


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--mamba-cache-mode foo", "--mamba-cache-mode: got another value, expected align or none or all"),
        (
            """--speculative-config '{"method": "mpt", "num_speculative_tokens": 2}'""",
            "--speculative-config: got method 'mpt', expected one that vLLM has (nearest: mtp, mlp_speculator, "
            "ngram_gpu)",
        ),
        ("--kv-offloading-size -3", "--kv-offloading-size: got -3, expected a number >= 0"),
        (
            "--gpu-memory-utilization 1.5",
            "--gpu-memory-utilization: got 1.5, expected a fraction from 0 to 1",
        ),
        (
            "--gpu-memory-utilization nan",
            "--gpu-memory-utilization: got nan, expected a fraction from 0 to 1",
        ),
    ],
)
def test_a_value_that_vllm_would_refuse_is_refused_where_it_is_read(flag: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_from_serve(f"vllm serve Qwen/Qwen3-8B {flag}")
    assert str(caught.value) == message


def test_flags_that_bear_on_the_speed_become_hardware_where_the_gpu_is_named(tmp_path: Path) -> None:
    command = "vllm serve Qwen/Qwen3-8B -tp 2 --gpu-memory-utilization 0.8 --kv-cache-dtype fp8 --new-flag 1"
    text, notes = twin_text(start_from_serve(command), gpu="A100-80")
    assert 'hardware:\n  gpu: "A100-80"\n  tp: 2\n  gpu_memory_utilization: 0.8\n' in text
    assert '  model: auto\n  model_config: "Qwen/Qwen3-8B"\n  kv_cache_dtype: "fp8"\n' in text
    assert [note for note in notes if note.startswith("--")] == ["--new-flag …: not in the twin"]
    engine = loaded(text, tmp_path).engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (256, 2048, 40960)
    assert any(
        note.startswith("-tp 2: in the coefficients") for note in twin_text(start_from_serve(command))[1]
    )


def test_a_header_says_what_its_server_was(tmp_path: Path) -> None:
    server = ServerInfo(
        model="a\nb", version="0.23.0", num_gpu_blocks=500, max_num_seqs=64, tensor_parallel=2
    )
    text, notes = twin_text(start_from_server(server, name="monday"))
    twin = loaded(text, tmp_path)
    assert twin.vllm_version == "0.23.0"
    assert twin.engine == EngineConfig.for_version("0.23.0", num_gpu_blocks=500, max_num_seqs=64)
    assert "tensor_parallel 2: in the coefficients, not in the engine" in notes


def test_the_command_prints_a_twin_of_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    header = Header(tool="vtwin", mode="real", server=ServerInfo(max_num_seqs=7))
    columns = {"request_id": ["0"], "arrival_time_us": [0], "input_tokens": [1], "output_tokens": [1]}
    write_trace(make_trace(header, columns), tmp_path / "monday")
    for arguments in (["--from-trace", "monday"], ["vllm serve m --max-num-seqs 7"]):
        assert vtwin.main(["config", "from-serve", *arguments]) == 0
        shown = capsys.readouterr()
        assert loaded(shown.out, tmp_path).engine.max_num_seqs == 7
        assert "# latency: placeholder values, not measured" in shown.out
        assert shown.err == ""
    assert vtwin.main(["config", "from-serve"]) == 2
    assert "got neither, expected one of them" in capsys.readouterr().err


def test_a_twin_that_will_not_run_says_so_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for command in (
        "vllm serve Qwen/Qwen3-32B",
        "vllm serve Qwen/Qwen3-8B",
        "vllm serve Qwen/Qwen3-8B --max-num-seqs 9000",
    ):
        assert vtwin.main(["config", "from-serve", command, "--gpu", "L40S"]) == 0
        lines = capsys.readouterr().err.splitlines()
        told.append([line.partition("as it is: ")[2][:30] for line in lines if "will not run" in line])
    assert told == [["KV cache: Qwen/Qwen3-32B on L4"], [], ["engine.max_num_batched_tokens "]]


def test_a_header_s_version_whose_rules_are_not_known_is_told(tmp_path: Path) -> None:
    text, notes = twin_text(start_from_server(ServerInfo(version="0.11.0"), name="monday"))
    assert loaded(text, tmp_path).vllm_version == "0.32.0"
    assert "vllm_version 0.11.0 is not known (0.12 to 0.33): the rules of 0.32.0 are used" in notes


def test_the_command_takes_the_version_whose_rules_and_defaults_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    header = Header(tool="vtwin", mode="real", server=ServerInfo(max_num_seqs=7, version="0.11.0"))
    columns = {"request_id": ["0"], "arrival_time_us": [0], "input_tokens": [1], "output_tokens": [1]}
    write_trace(make_trace(header, columns), tmp_path / "monday")
    asked = ["config", "from-serve", "vllm serve m"]
    for version in ("0.30.1", "v0.13.0"):
        assert vtwin.main([*asked, "--from-trace", "monday", "--vllm-version", version]) == 0
        shown = capsys.readouterr()
        assert loaded(shown.out, tmp_path).vllm_version == version
        assert "0.11.0" not in shown.out, "of a version that the user replaces nothing is told"
    for version in ("0.12.0", "0.32.0"):
        assert (
            vtwin.main(
                [*asked, "--gpu", "H100", "--model-config", "Qwen/Qwen3-8B", "--vllm-version", version]
            )
            == 0
        )
        assert loaded(capsys.readouterr().out, tmp_path).engine.vllm_version == version
    assert vtwin.main([*asked, "--vllm-version", "0.99.0"]) == 0
    shown = capsys.readouterr()
    assert loaded(shown.out, tmp_path).vllm_version == "0.32.0"
    assert "# vllm_version 0.99.0 is not known (0.12 to 0.33): the rules of 0.32.0 are used" in shown.out
    for version in ("newest", "0." + "9" * 5000):
        assert vtwin.main([*asked, "--vllm-version", version]) == 2
        assert "expected a version such as 0.32.0" in capsys.readouterr().err


# speculative decoding


def speculative(config: str, more: str = "") -> dict[str, object]:
    return dict(start_from_serve(f"vllm serve m --speculative-config '{config}' {more}").engine)


def test_a_speculative_config_becomes_the_engines_settings(tmp_path: Path) -> None:
    eagle = speculative('{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}')
    assert (eagle["num_speculative_tokens"], eagle["num_lookahead_tokens"], eagle["use_eagle"]) == (
        3,
        3,
        True,
    )
    kept = speculative('{"method": "mtp", "num_speculative_tokens": 1, "disable_eagle_block_drop": true}')
    assert "use_eagle" not in kept
    legacy = '{"method": "mtp", "num_speculative_tokens": 1, "disable_lookahead_block_hashes": true}'
    notes = start_from_serve(f"vllm serve m --speculative-config '{legacy}'").notes
    assert any("disable_lookahead_block_hashes is not simulated" in note for note in notes)
    assert speculative('{"method": "deepseek_mtp", "num_speculative_tokens": 1}')["use_eagle"]
    assert (kept["speculative_method"], eagle["speculative_method"]) == ("mtp", "eagle3")
    assert "speculative_model" not in eagle
    ngram = speculative('{"method": "ngram", "num_speculative_tokens": 5}')
    assert (ngram["num_lookahead_tokens"], ngram["async_scheduling"]) == (0, False)
    assert "use_eagle" not in ngram
    assert speculative('{"method": "ngram", "num_speculative_tokens": 5}', "--async-scheduling")[
        "async_scheduling"
    ]
    text, notes = twin_text(
        start_from_serve('vllm serve m --speculative-config \'{"model": "d", "num_speculative_tokens": 2}\'')
    )
    assert loaded(text, tmp_path).engine.synthetic_acceptance_rates == (0.7,)
    assert any(note.startswith("synthetic_acceptance_rates: 0.7 for each draft is assumed") for note in notes)
    assert any('model "d" is in the time that drafting takes' in note for note in notes)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3"),
        ("meta-llama/Llama-3.2-1B", "draft_model"),
        ("ngram", None),
        ("z-lab/Qwen3-8B-DFlash", None),
        ("deepseek-ai/DeepSeek-V3", "mtp"),
    ],
)
def test_without_a_method_the_drafting_model_says_it(model: str, method: str | None) -> None:
    """By its name, or as one with MTP layers, which vLLM takes for them (hf_config_override)."""
    found = speculative(f'{{"model": "{model}", "num_speculative_tokens": 2}}')
    assert found.get("speculative_method") == method
    assert found.get("use_eagle", False) is (method in ("eagle", "eagle3", "mtp") or "DFlash" in model)
    assert found.get("speculative_model") == (model if method == "draft_model" else None)
    if "ngram" not in model:  # vLLM looks at the model where it is told draft_model, too
        said = speculative(f'{{"method": "draft_model", "model": "{model}", "num_speculative_tokens": 2}}')
        assert said == found


def test_a_drafting_model_at_hand_is_in_the_twin_and_its_layers_count(tmp_path: Path) -> None:
    command = (
        "vllm serve meta-llama/Llama-3.1-8B --speculative-config "
        '\'{"model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 2}\''
    )
    text, notes = twin_text(start_from_serve(command), gpu="H100")
    assert not any("is in the time that drafting takes" in note for note in notes)
    found = loaded(text, tmp_path)
    plain = loaded(text.replace("  speculative_model: meta-llama/Llama-3.2-1B\n", ""), tmp_path)
    assert found.engine.num_gpu_blocks < plain.engine.num_gpu_blocks


@pytest.mark.parametrize(
    ("said", "rates"),
    [
        ('"synthetic_acceptance_rates": [0.8, 0.5, 0.1]', [0.8, 0.5, 0.1]),
        ('"synthetic_acceptance_length": 2.6', [1.0, pytest.approx(0.6), 0.0]),
    ],
)
def test_a_server_that_accepts_at_given_rates_says_them(said: str, rates: list[float]) -> None:
    config = (
        '{"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic", ' + said + "}"
    )
    assert speculative(config)["synthetic_acceptance_rates"] == rates


@pytest.mark.parametrize("config", ["", "{", '{"method": "mtp"}', '{"num_speculative_tokens": 0}', "[1]"])
def test_a_speculative_config_that_says_no_number_is_refused(config: str) -> None:
    with pytest.raises(ConfigError, match="--speculative-config: got"):
        speculative(config)


def test_a_traces_header_says_how_drafts_were_accepted(tmp_path: Path) -> None:
    drafts = SpecDecode(
        num_drafts=1000,
        num_draft_tokens=3000,
        num_accepted_tokens=1500,
        mean_accepted_length=2.5,
        accepted_frac_per_position=(0.8, 0.45, 0.46),
    )
    text, notes = twin_text(start_from_header(Header(spec_decode=drafts), name="monday"))
    assert loaded(text, tmp_path).engine.synthetic_acceptance_rates == (0.8, 0.45, 0.45)
    assert any("by the server's counters vllm:spec_decode_* (1,000 drafts of 3)" in note for note in notes)
    unsaid = replace(drafts, accepted_frac_per_position=())
    text, _ = twin_text(start_from_header(Header(spec_decode=unsaid), name="monday"))
    rates = loaded(text, tmp_path).engine.acceptance_rates
    assert (len(rates), sum(rates)) == (3, pytest.approx(1.5, abs=1e-5))


def test_a_header_s_share_of_memory_and_experts_reach_the_hardware() -> None:
    server = ServerInfo(model="Qwen/Qwen3-30B-A3B", gpu_memory_utilization=0.8, enable_expert_parallel=True)
    text, _ = twin_text(start_from_server(server, name="monday"), gpu="H100")
    assert "  gpu_memory_utilization: 0.8\n" in text
    assert "  enable_expert_parallel: true\n" in text


def test_a_header_s_second_tier_and_a_server_s_adapters_have_their_sizes(tmp_path: Path) -> None:
    tier = KVOffload(cpu_bytes_to_use=10_000_000, per_block_bytes=4_000)
    text, notes = twin_text(start_from_header(Header(kv_offload=tier), name="monday"))
    assert loaded(text, tmp_path).engine.num_cpu_blocks == 2500
    assert any(note.startswith("num_cpu_blocks: 2500") for note in notes)
    text, notes = twin_text(start_from_serve("vllm serve m --enable-lora"))
    assert loaded(text, tmp_path).engine.max_loras == 1
    assert "max_loras not given: 1, vLLM's own; a step holds one adapter at a time" in notes
    assert start_from_serve("vllm serve m --enable-lora --max-loras 4").engine["max_loras"] == 4
    assert "max_loras" not in start_from_serve("vllm serve m").engine


def test_the_command_takes_gpu_model_and_gpus_per_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["config", "from-serve", "vllm serve /models/mine --served-model-name chat"]
    assert vtwin.main([*asked, "--gpu", "H100", "--model-config", "Qwen/Qwen3-14B", "--tp", "2"]) == 0
    shown = capsys.readouterr()
    assert 'hardware:\n  gpu: "H100"\n  tp: 2\n' in shown.out
    assert 'model_config: "Qwen/Qwen3-14B"' in shown.out
    assert "# max_num_seqs not given: 1024, vLLM's default on H100" in shown.out
    assert loaded(shown.out, tmp_path).engine.max_num_seqs == 1024
    for alone in (["--model-config", "Qwen/Qwen3-14B"], ["--tp", "2"]):
        assert vtwin.main([*asked, *alone]) == 2
        assert "got it without --gpu" in capsys.readouterr().err
    assert vtwin.main([*asked, "--gpu", "H100", "--model-config", "nobody/knows"]) == 2
    assert "nobody/knows" in capsys.readouterr().err
    split = ["config", "from-serve", "vllm serve Qwen/Qwen3-14B -tp 4", "--gpu", "H100", "--tp"]
    assert vtwin.main([*split, "4"]) == 0
    assert vtwin.main([*split, "2"]) == 2
    assert "--tp: got 2, expected 4, which a vllm serve command line says" in capsys.readouterr().err


def test_a_model_s_config_json_is_taken_as_a_file_or_by_its_folder(tmp_path: Path) -> None:
    config = shipped_config("Qwen/Qwen3-14B")
    assert config is not None
    (tmp_path / "config.json").write_text(config.read_text())
    start = start_from_serve("vllm serve chat")
    for given in (tmp_path, tmp_path / "config.json"):
        text, _ = twin_text(named(start, model_config=str(given)), gpu="H100")
        assert f'model_config: "{(tmp_path / "config.json").resolve()}"' in text
        assert loaded(text, tmp_path).shape is not None
