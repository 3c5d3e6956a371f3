"""How each tool replays what was exported for it: the command, with the options without which it reads another load.

Source of the options: guidellm 0.8.1 `guidellm run --help`, schemas/data/deserializers/trace_common.py (``source`` is a
data set of its own, with a kind) and benchmark/profiles/replay.py (``time_scale`` multiplies timestamps, which count as
s); aiperf's "Trace Replay with Mooncake Traces", "Profile with BurstGPT Traces" and
command line options (``--isl-block-size``); vllm 0.32.0 benchmarks/serve.py and datasets (``timed_trace``,
``burstgpt``); github.com/blitz-serving/trace-replayer, docs/arguments.md.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from traces.exporters.formats import HASH_BLOCK_SIZE
from traces.exporters.target import TargetFormat
from traces.trace import Trace

_AIPERF: Final = (
    "aiperf profile --model MODEL --url URL --endpoint-type chat --streaming --extra-inputs ignore_eos:true"
)
"""aiperf itself asks for a most of tokens only: an answer would end where the model ends it."""


def replay_commands(trace: Trace, target: TargetFormat, path: Path) -> tuple[str, ...]:
    """Return how tools replay ``path``, to which ``trace`` was exported, a line each; none for results."""
    file = shlex.quote(str(path))
    block = trace.header.hash_block_size or HASH_BLOCK_SIZE
    if target == "mooncake":
        return (
            f"aiperf: `{_AIPERF} --input-file {file} --custom-dataset-type mooncake_trace --fixed-schedule "
            f"--isl-block-size {block}`",
            "guidellm: `guidellm run --backend kind=openai_http,target=URL --profile kind=replay,time_scale=0.001 "
            f"--data kind=mooncake,source.kind=json_file,source.path={file},hash_id_block_size={block}`; without "
            "time_scale it takes the file's ms for s and sends a thousand times too slowly",
        )
    if target == "vllm-bench":
        return (
            "vllm bench: `vllm bench serve --model MODEL --base-url URL --dataset-name timed_trace "
            f"--dataset-path {file} --num-prompts {len(trace)} --no-oversample --ignore-eos --self-timed "
            f"--timed-trace-sec-multiplier 0.001 --timed-trace-chunk-hash-size {block} --save-result --save-detailed`",
        )
    if target == "burstgpt":
        return (
            f"aiperf: `{_AIPERF} --input-file {file} --custom-dataset-type burst_gpt_trace --fixed-schedule`",
            "vllm bench: `vllm bench serve --model MODEL --base-url URL --dataset-name burstgpt "
            f"--dataset-path {file} --num-prompts {len(trace)} --request-rate R --ignore-eos`; it draws the rows in an "
            "order of its own and reads no times: `--to vllm-bench` keeps them",
            "Model is GPT-4 in every row, whatever it was: vllm bench reads no others",
        )
    if target == "azure":
        return (
            "trace-replayer: `--dataset azure --dataset-path "
            f"{file} --api openai --endpoint URL`; vllm bench, aiperf and guidellm do not read this format",
        )
    return ()
