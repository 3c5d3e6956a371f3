"""What is exported comes with the command that replays it, and with the options that its units need."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces import Header, Trace, make_trace
from traces.exporters import export
from traces.exporters.replay_commands import replay_commands
from traces.exporters.target import TARGET_FORMATS, TargetFormat


def drawn(block: int | None = None) -> Trace:
    return make_trace(
        Header(mode="generated", tool="vtwin", hash_block_size=block),
        {
            "request_id": ["a", "b"],
            "arrival_time_us": [0, 1500],
            "input_tokens": [100, 30],
            "output_tokens": [10, 4],
            "model": ["llama", None],
        },
    )


@pytest.mark.parametrize(
    ("target", "tools", "options"),
    [
        (
            "mooncake",
            ["aiperf", "guidellm"],
            [
                "time_scale=0.001",
                "--fixed-schedule",
                "--isl-block-size 512",
                "--extra-inputs ignore_eos:true",
            ],
        ),
        (
            "vllm-bench",
            ["vllm bench"],
            ["--timed-trace-sec-multiplier 0.001", "--timed-trace-chunk-hash-size 512", "--num-prompts 2"],
        ),
        ("burstgpt", ["aiperf", "vllm bench"], ["burst_gpt_trace", "--dataset-name burstgpt"]),
        ("azure", ["trace-replayer"], ["--dataset azure"]),
    ],
)
def test_each_tool_has_its_command(target: TargetFormat, tools: list[str], options: list[str]) -> None:
    said = "\n".join(replay_commands(drawn(), target, Path("out file.jsonl")))
    assert all(f"{tool}: `" in said for tool in tools)
    assert all(option in said for option in options)
    assert "'out file.jsonl'" in said


def test_blocks_of_another_size_are_said_to_the_tool() -> None:
    said = "\n".join(replay_commands(drawn(16), "mooncake", Path("m.jsonl")))
    assert "--isl-block-size 16" in said
    assert "hash_id_block_size=16" in said


def test_guidellm_is_told_server_and_file_by_the_words_of_its_run_command() -> None:
    said = "\n".join(replay_commands(drawn(), "mooncake", Path("m.jsonl")))
    assert "`guidellm run --backend kind=openai_http,target=URL " in said
    assert "--data kind=mooncake,source.kind=json_file,source.path=m.jsonl," in said


def test_results_have_no_command() -> None:
    others = set(TARGET_FORMATS) - {"mooncake", "vllm-bench", "burstgpt", "azure"}
    assert [replay_commands(drawn(), target, Path("o")) for target in others] == [()] * len(others)


def test_every_row_of_burstgpt_has_the_model_that_vllm_bench_reads(tmp_path: Path) -> None:
    rows = export(drawn(), "burstgpt", tmp_path / "b.csv").read_text().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == ["GPT-4", "GPT-4"]
