"""Public formats become traces that say where they come from; what is wrong is named by file and line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.traces.made import BLIS, SAMPLES, shared
from traces import (
    ConfigError,
    Header,
    Trace,
    TraceError,
    check_trace,
    convert,
    prefix_hit_ceiling_frac,
    read_trace,
    request_metrics,
    write_trace,
)
from traces.conversion import SourceFormat


def kept(trace: Trace, tmp_path: Path) -> Trace:
    """Return the trace after a way through the disk, checked."""
    write_trace(trace, tmp_path / "kept")
    assert check_trace(tmp_path / "kept") == []
    return read_trace(tmp_path / "kept")


def test_azure_times_count_from_the_first_row_in_microseconds(tmp_path: Path) -> None:
    trace = kept(convert("azure", SAMPLES / "azure_code_200.csv"), tmp_path)
    assert len(trace) == 200
    assert trace.requests["arrival_time_us"].head(3).tolist() == [0, 52_000, 98_189]
    assert trace.requests["input_tokens"].head(3).tolist() == [4808, 3180, 110]
    assert trace.requests["output_tokens"].head(3).tolist() == [10, 8, 27]
    assert trace.header.start_unix_us == 1_700_158_623_979_960
    assert trace.header.mode == "generated"
    assert trace.column("status").isna().all()


def test_azures_seventh_digit_rounds_to_even_and_rows_may_be_out_of_order(tmp_path: Path) -> None:
    stamps = ["18:17:04.0000015", "18:17:04.0000025", "18:17:04", "18:17:05.5"]
    path = tmp_path / "a.csv"
    rows = "".join(f"2023-11-16 {stamp},1,1\r\n" for stamp in stamps)
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\r\n{rows}".strip())
    assert convert("azure", path).requests["arrival_time_us"].tolist() == [2, 2, 0, 1_500_000]


def test_a_long_integer_is_told_as_it_stands_whatever_the_other_lines_are(tmp_path: Path) -> None:
    """The fast reader would make a float of it."""
    plain = '{"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n'
    path = tmp_path / "mooncake.jsonl"
    path.write_text(plain + plain.replace("600", str(10**25)))
    with pytest.raises(TraceError, match=r"mooncake.jsonl:2: got a number of 26 digits"):
        convert("mooncake", path)


def test_mooncakes_hashes_come_along_with_their_block_size(tmp_path: Path) -> None:
    trace = kept(convert("mooncake", SAMPLES / "mooncake_conversation_200.jsonl"), tmp_path)
    assert len(trace) == 200
    assert trace.header.hash_block_size == 512
    assert trace.requests["prefix_hashes"][0] == "0 1 2 3 4 5 6 7 8 9 10 11 12 13"
    assert trace.requests["input_tokens"].head(2).tolist() == [6758, 7322]
    assert trace.requests["output_tokens"].head(2).tolist() == [500, 490]
    last = json.loads((SAMPLES / "mooncake_conversation_200.jsonl").read_text().splitlines()[-1])
    assert trace.requests["arrival_time_us"].iloc[-1] == last["timestamp"] * 1000


def test_a_gzipped_file_reads_as_the_plain_one(tmp_path: Path) -> None:
    plain = SAMPLES / "mooncake_conversation_200.jsonl"
    packed = tmp_path / "m.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert convert("mooncake", packed).requests.equals(convert("mooncake", plain).requests)


def test_an_engines_own_times_become_a_real_trace(tmp_path: Path) -> None:
    trace = kept(convert("llmservingsim", SAMPLES / "llmservingsim" / "requests.jsonl"), tmp_path)
    line = json.loads((SAMPLES / "llmservingsim" / "requests.jsonl").read_text().splitlines()[1])
    zero = 27536.660701067  # the first request's queued_ts
    row = trace.requests.set_index("request_id").loc["bench-1"]
    assert row["send_time_us"] == row["arrival_time_us"] == round((line["queued_ts"] - zero) * 1e6)
    assert row["content_first_time_us"] == round((line["first_token_ts"] - zero) * 1e6)
    assert row["server_queue_us"] == row["scheduled_time_us"] - row["send_time_us"] == 10
    assert row["server_queue_us"] + row["server_prefill_us"] + row["server_decode_us"] == (
        row["last_token_time_us"] - row["send_time_us"]
    )
    assert trace.requests["arrival_time_us"].min() == 0
    assert request_metrics(trace).notna().sum()["ttft_us"] == 100


def test_the_servers_metadata_comes_along_with_its_source() -> None:
    server = convert("llmservingsim", SAMPLES / "llmservingsim").header.server
    assert (server.model, server.version) == ("meta-llama/Llama-3.1-8B", "0.19.0")
    assert (server.max_num_seqs, server.max_num_batched_tokens) == (256, 2048)
    assert (server.num_gpu_blocks, server.block_size) == (2588, 16)
    assert (server.tensor_parallel, server.data_parallel) == (1, 1)
    assert (server.async_scheduling, server.enable_chunked_prefill) == (True, True)
    assert server.sources["num_gpu_blocks"] == "meta.json kv_cache.num_gpu_blocks"


def test_without_metadata_the_server_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_bytes((SAMPLES / "llmservingsim" / "requests.jsonl").read_bytes())
    assert convert("llmservingsim", tmp_path).header.server == Header().server


def test_a_trace_converts_to_itself() -> None:
    assert convert("tracev2", BLIS / "p").requests.equals(read_trace(BLIS / "p").requests)


MOONCAKE = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
RUN = (
    '{"request_id": "r", "input_toks": 1, "output_toks": 1, "queued_ts": 2.0, "scheduled_ts": 1.0, '
    '"first_token_ts": 3.0, "last_token_ts": 4.0}\n'
)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,1,2\n"


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        (
            "mooncake",
            MOONCAKE + "{oops\n",
            "f:2: Expecting property name enclosed in double quotes at column 2",
        ),
        ("mooncake", MOONCAKE + "\n[1]\n", "f:3: got list, expected one JSON object"),
        (
            "mooncake",
            MOONCAKE.replace('"input_length": 5, ', ""),
            "f:1: input_length: got nothing, expected an",
        ),
        ("mooncake", MOONCAKE.replace("5", "-5"), "f:1: input_length: got -5, expected an integer >= 0"),
        ("mooncake", MOONCAKE.replace("5", "true"), "f:1: input_length: got True, expected an integer >= 0"),
        (
            "mooncake",
            MOONCAKE.replace("[1]", '["1"]'),
            "f:1: hash_ids: got ['1'], expected a list of integers",
        ),
        (
            "mooncake",
            MOONCAKE.replace("[1]", "[1, 2]"),
            "f: hash_ids: got 2 hash_ids for a prompt of 5 tokens, expected 1 in blocks of 512",
        ),
        (
            "mooncake",
            MOONCAKE.replace(": 0", ": -1"),
            "row 1, arrival_time_us: got -1000, expected an integer",
        ),
        ("mooncake", MOONCAKE.replace(": 0", ": NaN"), "f:1: timestamp: got nan, expected a number"),
        ("mooncake", "", "f: got no rows, expected one JSON object a line"),
        ("llmservingsim", RUN, "row 1, server_queue_us: got -1000000, expected an integer >= 0"),
        ("llmservingsim", RUN.replace("2.0", "null"), "f:1: queued_ts: got None, expected a number"),
        ("llmservingsim", RUN.replace("2.0", "1.0") * 2, "row 2, request_id: got 'r' a second time"),
        (
            "azure",
            AZURE.replace("2023", "23"),
            "f:2: TIMESTAMP: got '23-11-16 18:17:03.97', expected YYYY-MM-DD",
        ),
        (
            "azure",
            AZURE.replace("-11-", "-13-"),
            "f:2: TIMESTAMP: got '2023-13-16 18:17:03.97', expected YYYY",
        ),
        ("azure", AZURE.replace(",1,", ",-1,"), "f:2: ContextTokens: got -1, expected an integer >= 0"),
        (
            "azure",
            AZURE.replace(",1,", ",,"),
            "f:2: ContextTokens: got an empty cell, expected an integer >= 0",
        ),
        ("azure", AZURE.replace(",1,", ",x,"), "f:2: ContextTokens: got 'x', expected an integer >= 0"),
        ("azure", AZURE + "1,2\n", "f:3: row: got 2 cells, expected 3"),
        ("azure", "a,b\n1,2\n", "column TIMESTAMP: got a table without it, expected columns TIMESTAMP, Con"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "f: got no rows, expected one request a row"),
    ],
)
def test_bad_input_is_named_by_file_and_line(
    source: SourceFormat, content: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text(content)
    with pytest.raises(TraceError, match=re.escape(expected)) as caught:
        convert(source, tmp_path / "f")
    assert "\n" not in str(caught.value)


def test_a_torn_gzip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gz").write_bytes(gzip.compress(MOONCAKE.encode())[:-9])
    with pytest.raises(TraceError, match="expected a whole gzip file"):
        convert("mooncake", tmp_path / "m.gz")


def test_bad_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text(RUN.replace("2.0", "1.0"))
    (tmp_path / "meta.json").write_text("{\n  oops")
    with pytest.raises(TraceError, match=r"meta\.json:2: "):
        convert("llmservingsim", tmp_path)


@pytest.mark.parametrize("source", ["azure", "mooncake", "llmservingsim", "tracev2"])
def test_a_missing_file_is_named(source: SourceFormat, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere"):
        convert(source, tmp_path / "nowhere")


def test_an_unknown_format_is_a_fault_of_usage() -> None:
    with pytest.raises(ConfigError, match="got 'burst', expected one of azure, mooncake"):
        convert("burst", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "num"), [("code", 8819), ("conv", 19_366)])
def test_the_whole_azure_trace_converts(name: str, num: int) -> None:
    trace = convert("azure", shared("azure_llm_2023", f"AzureLLMInferenceTrace_{name}.csv"))
    assert len(trace) == num
    assert trace.requests["arrival_time_us"].min() == 0


@pytest.mark.parametrize(
    ("name", "num", "ceiling"), [("conversation", 12_031, 0.3736), ("synthetic", 3_993, 0.6512)]
)
def test_the_whole_mooncake_trace_converts(name: str, num: int, ceiling: float) -> None:
    trace = convert("mooncake", shared("mooncake_fast25", f"{name}_trace.jsonl.gz"))
    assert len(trace) == num
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(ceiling, abs=1e-4)


@pytest.mark.parametrize(
    "run",
    [
        "RTX4090/Llama-3.1-8B",
        "RTXPRO6000/Llama-3.1-8B",
        "RTXPRO6000/Qwen3-30B-A3B-Instruct-2507",
        "RTXPRO6000/Qwen3-32B",
    ],
)
def test_our_latencies_of_a_measured_run_are_those_its_authors_published(run: str) -> None:
    folder = shared("llmservingsim_bench", "runs", *run.split("/"))
    metrics = request_metrics(convert("llmservingsim", folder))
    published = (folder / "validation" / "summary.txt").read_text()
    for title, column in (("TTFT", "ttft_us"), ("TPOT", "tpot_us"), ("Latency", "e2e_us")):
        for name, value in (("Mean", metrics[column].mean()), ("Median", metrics[column].median())):
            stated = re.search(rf"{title} {name} +([\d.]+)", published)
            assert stated is not None
            assert float(stated[1]) == pytest.approx(value / 1000, abs=0.051)
    assert np.isfinite(metrics["ttft_us"]).all()
