"""A real vLLM's spans beside what its client measured, and a fit on the spans alone.

``python -m tests.studies.live.spans``.

Two loads are observed while `vtwin receive` takes the server's spans. Each request is found in both traces by its
X-Request-Id. The twin is fitted to the first load's spans and judged on the second's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.studies.live.__main__ import LENGTHS, METRICS, guess_config, read_errors, vtwin
from tests.studies.live.server import installation, say, serving
from traces import Trace, read_trace, select_rows, write_trace

LOADS = {"fitted": (1.6, 120), "held-out": (1.8, 100)}
"""Requests per second, and how many."""
OUTPUT = Path("vtwin-live") / "spans"
PORT = 4471
FLAGS = ("--enable-per-request-metrics", "--otlp-traces-endpoint", f"http://127.0.0.1:{PORT}/v1/traces")
ENVIRONMENT = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "1000"}
EXPORTED_S = 3.0


def main() -> int:
    """Print how far the two traces are apart, and what a fit on spans is worth."""
    asked = argparse.ArgumentParser(prog="python -m tests.studies.live.spans", description=__doc__)
    asked.add_argument("--url", help=f"a server that runs already, and sends its spans to port {PORT}")
    url = asked.parse_args().url
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    folder = OUTPUT
    with contextlib.ExitStack() as stack:
        stack.enter_context(receiving(folder / "prod"))
        if url is None:
            server = serving(installation(), log=folder / "vllm.log", flags=FLAGS, environment=ENVIRONMENT)
            url = stack.enter_context(server)
        for load, (rate, number) in LOADS.items():
            lengths = [str(word) for pair in LENGTHS.items() for word in pair]
            drawn = ["--rate", str(rate), "--num-requests", str(number), "--warmup-requests", "5"]
            vtwin(
                "observe", "--url", url, "--model", "tiny", *drawn, *lengths, "--output", str(folder / load)
            )
            time.sleep(EXPORTED_S)
        told = spans_by_load(folder)
        (folder / "guess.yaml").write_text(guess_config())
        for load, trace in told.items():
            compare(load, read_trace(folder / load), trace)
        fit(folder)
    return 0


@contextlib.contextmanager
def receiving(output: Path) -> Iterator[None]:
    """Take spans while the context lasts."""
    command = [sys.executable, "-P", "-m", "vtwin", "receive", "--port", str(PORT), "--output", str(output)]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(EXPORTED_S)
            yield
        finally:
            process.send_signal(signal.SIGINT)


def spans_by_load(folder: Path) -> dict[str, Trace]:
    """Return each load's part of the received traces, which are still growing, and write it beside the client's."""
    told: dict[str, Trace] = {}
    for load in LOADS:
        sent = set(read_trace(folder / load).column("x_request_id"))
        parts = [read_trace(file) for file in sorted(folder.glob("prod-*.yaml"))]
        (told[load],) = [
            select_rows(part, keep)
            for part in parts
            if (keep := part.column("x_request_id").isin(sent).to_numpy()).any()
        ]
        write_trace(told[load], folder / f"{load}-spans")
    return told


def compare(load: str, client: Trace, spans: Trace) -> None:
    """Print the differences, request by request, of what both traces have."""
    ours, theirs = (trace.requests.set_index("x_request_id") for trace in (client, spans))
    both = ours.index.intersection(theirs.index)
    ours, theirs = ours.loc[both], theirs.loc[both]
    say(f"\n{load}: {len(client)} requests observed, {len(spans)} spans, {len(both)} in both")
    for column in ("server_queue_us", "server_prefill_us", "server_decode_us", "output_tokens"):
        say(f"  {column}: differs in {int((ours[column] != theirs[column]).sum())}")
    say(f"  prompt tokens: differ in {int((ours['server_input_tokens'] != theirs['input_tokens']).sum())}")
    for name, column in (("TTFT", "content_first_time_us"), ("E2E", "last_token_time_us")):
        mine, its = (
            (each[column] - each["send_time_us"]).to_numpy(dtype=np.float64) / 1e3 for each in (ours, theirs)
        )
        p50, p90, most = np.quantile(mine - its, [0.5, 0.9, 1.0])
        say(
            f"  {name}: client {mine.mean():.1f} ms, spans {its.mean():.1f} ms; client's less the spans', per request: "
            f"p50 {p50:.2f}, p90 {p90:.2f}, max {most:.2f} ms"
        )


def fit(folder: Path) -> None:
    """Print the errors, on the held-out load, of a twin fitted to the first load's spans, and to the client's trace."""
    say(f"\nload average {os.getloadavg()[0]:.1f}")
    for kind in ("-spans", ""):
        report = folder / f"report{kind}"
        options = ["--config", str(folder / "guess.yaml"), "--fit", "--latency-model", "blackbox"]
        held_out = ["--holdout", str(folder / f"held-out{kind}")]
        written = ["--write-config", str(folder / f"twin{kind}.yaml"), "--report", str(report)]
        vtwin("calibrate", str(folder / f"fitted{kind}"), *options, *held_out, *written)
        errors = read_errors(report, "holdout")
        coefficients = json.loads((report / "report.json").read_text())["fit"]["coefficients"]
        say("fitted to " + ("the client's trace" if not kind else "spans"))
        for metric in METRICS:
            if (found := errors.get(f"{metric}_us")) is not None:
                mean, single = found["rel_error"]["mean"]["value"], found["mape"]["value"]
                say(f"  {metric}: mean {100 * mean:+.1f} %, per request {100 * single:.1f} %")
        say("  " + ", ".join(f"{name} {each['value']:.0f}" for name, each in coefficients.items()))


if __name__ == "__main__":
    sys.exit(main())
