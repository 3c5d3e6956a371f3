"""`make live`: `vtwin validate` against a real vLLM server on this machine's CPU; results in vtwin-live/."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calibrate.validate.plan import ValidationPlan
from tests.studies.live.advised import advised
from tests.studies.live.server import ENGINE, VLLM, installation, say, serving

OUTPUT = Path("vtwin-live")
RATE = 2.8  # requests per second, the plan's highest; capacity is about 4.4 at these lengths
NUM_REQUESTS = 120
LENGTHS = {
    "--prompt-tokens": 150,
    "--prompt-tokens-stdev": 100,
    "--prompt-tokens-min": 8,
    "--prompt-tokens-max": 1200,
    "--output-tokens": 24,
    "--output-tokens-stdev": 12,
    "--output-tokens-min": 2,
    "--output-tokens-max": 80,
}
GUESS = {"alpha0": 5000, "alpha1": 1, "alpha2": 0, "beta0": 10000, "beta1": 500, "beta2": 500}
METRICS = ("ttft", "itl", "tpot", "e2e")


def main() -> int:
    """Run `vtwin validate` against a server started for it; return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the server too, as Ctrl-C does
    OUTPUT.mkdir(exist_ok=True)
    place = installation()
    (OUTPUT / "machine.json").write_text(json.dumps(machine(), indent=2) + "\n")
    guess = OUTPUT / "server.yaml"
    guess.write_text(guess_config())
    with serving(place, log=OUTPUT / "vllm.log") as url:
        lengths = [str(word) for pair in LENGTHS.items() for word in pair]
        load = ["--rate", str(RATE), "--num-requests", str(NUM_REQUESTS), *lengths]
        server = ["--url", url, "--model", "tiny", "--warmup-requests", "10", "--config", str(guess)]
        vtwin("validate", *server, *load, "--output", str(OUTPUT))
        held_out = ValidationPlan(folder=OUTPUT, load=(), rate_per_s=RATE).holdout_trace()
        found = advised(OUTPUT, held_out, server=server[:6], lengths=lengths)
    report = OUTPUT / "report"
    show(
        {"twin": read_errors(report, "holdout"), "the server, run again": read_errors(report, "noise_floor")}
    )
    say("\n" + found.text())
    (OUTPUT / "advised.json").write_text(json.dumps(asdict(found), indent=2) + "\n")
    say(f"\nreport: {report / 'report.html'}")
    return 0


def guess_config() -> str:
    """Return the TWIN.yaml that the fit starts from: the server's flags, and guessed coefficients."""
    engine = "".join(f"  {key}: {value}\n" for key, value in ENGINE.items())
    latency = f"latency:\n  model: blackbox\n  coefficients: {json.dumps(GUESS)}\n"
    return f'vllm_version: "{VLLM}"\nengine:\n{engine}{latency}'


def vtwin(*arguments: str) -> None:
    """Run a vtwin command as a user would; SystemExit with its exit code where that is not 0."""
    say("\n$ vtwin " + " ".join(arguments))
    done = subprocess.run([sys.executable, "-P", "-m", "vtwin", *arguments], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def machine() -> dict[str, object]:
    """Return what the figures depend on beside vLLM: the processor, how busy it was, the versions."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": cpu[0].split(":")[1].strip() if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "vllm": VLLM,
    }


Errors = dict[str, dict[str, Any]]  # metric: as report.json has it


def read_errors(report: Path, side: str) -> Errors:
    """Return one side of a report: its metrics, each with its statistics."""
    errors: Errors = json.loads((report / "report.json").read_text())[side]
    return errors


def show(errors: dict[str, Errors]) -> None:
    """Print the errors of the means and of single requests: the twin's, and the server's own from run to run."""
    say(f"\n{'held out':<9}" + "".join(f"{name:>38}" for name in errors))
    for metric in METRICS:
        cells = []
        for side in errors.values():
            mean, single = side[f"{metric}_us"]["rel_error"]["mean"], side[f"{metric}_us"]["mape"]
            cells.append(f"mean {100 * mean['value']:+.1f} %, per request {100 * single['value']:.1f} %")
        say(f"{metric:<9}" + "".join(f"{cell:>38}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
