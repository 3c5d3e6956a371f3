"""An option that only another tool has is answered with vtwin's own way to say it, and that way exists."""

from __future__ import annotations

import re

import click
import pytest
import typer

import vtwin
from replay.twin.config_keys import all_keys
from replay.twin.start.other_flags import KEYS, OPTIONS, PEERS, own_way


def options_of(command: click.Command) -> set[str]:
    """Return every option of a command and of those below it."""
    found = {name for each in command.params for name in each.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= options_of(below)
    return found


def test_every_key_and_every_option_that_is_named_exists() -> None:
    paths = {key.path for key in all_keys()} | {"cluster.pools", "cluster.routing.scorers"}
    assert [key for key in KEYS.values() if "." not in key and key not in paths] == []
    assert {key for key in KEYS.values() if key not in paths} == set()
    whole = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    named = {
        option for _, *texts in PEERS.values() for text in texts for option in re.findall(r"--[a-z-]+", text)
    }
    assert {*OPTIONS.values(), *named} <= options_of(whole)


def test_a_flag_stands_in_one_table_and_is_no_option_of_ours() -> None:
    assert (set(PEERS) & set(KEYS)) | (set(PEERS) & set(OPTIONS)) == set()
    observe = typer.main.get_command(vtwin.build_app(["observe"], is_alone=True))
    assert set(PEERS) & options_of(observe) <= {"--api-key"}  # which run, that sends nothing, lacks


@pytest.mark.parametrize(
    ("command", "flag", "says"),
    [
        ("observe", "--input-len", "it is vllm bench's; here --prompt-tokens"),
        ("observe", "--isl", "it is aiperf's; here --prompt-tokens"),
        ("run", "--num-prompts", "it is vllm bench's; here --num-requests"),
        ("run", "--request-rate", "here --rate"),
        ("observe", "--target", "it is guidellm's; here --url"),
        ("run", "--target", "it is guidellm's; other commands have --url"),
        ("observe", "--max-seconds", "here --duration"),
        ("observe", "--concurrency-levels", "--sweep concurrency="),
        ("observe", "--trace-header", "it is BLIS's; here --output STEM"),
        ("observe", "--record-itl", "here --no-itl"),
        ("run", "--replica_config_memory_margin_fraction", "hardware.gpu_memory_utilization"),
        ("run", "--sarathi_scheduler_config_chunk_size", "engine.max_num_batched_tokens"),
        ("run", "--metrics_config_write_metrics", "it is Vidur's; not needed here"),
    ],
)
def test_a_peer_s_flag_is_answered_with_whose_it_is_and_our_option(
    command: str, flag: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([command, flag, "4"]) == 2
    line = " ".join(capsys.readouterr().err.split())
    assert f"No such option '{flag}': " in line
    assert says in line


@pytest.mark.parametrize("flag", ["--all", "--low-code", "--colow-code", "--alow"])
def test_nobody_is_led_to_let_a_file_run_code(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["run", flag]) == 2
    assert "--allow-code" not in capsys.readouterr().err


def test_who_mistypes_it_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["run", "--allow-coed"]) == 2
    assert "--allow-code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--total-kv-blocks", "engine.num_gpu_blocks in TWIN.yaml, or --set engine.num_gpu_blocks=…"),
        ("--max-num-seqs", "engine.max_num_seqs in TWIN.yaml, or --set engine.max_num_seqs=…"),
        ("--num-instances", "use --instances"),
        ("--routing-policy", "use --routing"),
        ("--replica_scheduler_config_type", "engine.batching in TWIN.yaml"),
    ],
)
def test_another_tool_s_flag_is_answered_with_our_own(
    flag: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(["run", flag, "4"]) == 2
    line = capsys.readouterr().err
    assert flag in line
    assert says in " ".join(line.split())


def test_a_flag_of_nobody_s_and_an_option_that_this_command_lacks_get_no_hint() -> None:
    assert own_way("--no-such-flag", {"--set"}) is None
    assert own_way("--num-instances", {"--set"}) is None
