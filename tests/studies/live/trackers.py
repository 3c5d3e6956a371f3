"""MLflow and Weights & Biases themselves, without a server: a run is logged to a folder and read back.

``python -m tests.studies.live.trackers``: installs each extra into a virtual environment of its own (``build/``), runs
``vtwin report`` there, and reads what it left with the library: every parameter, metric and file, and no key.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from observe import report_runs
from observe.measured.logged_run import logged_run
from tests.calibrate.known_servers import observed, workload
from tests.test_imports import ROOT
from tests.wheel import PARTS, ROOMS
from traces import ServerInfo, write_trace

FOLDER = ROOT / "build" / "trackers"
KEY = "sk-in-the-environment"

READ_MLFLOW = """
import json, sys, mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
[run] = client.search_runs([client.get_experiment_by_name("vtwin").experiment_id])
files = sorted(each.path for each in client.list_artifacts(run.info.run_id))
print(json.dumps([run.data.params, run.data.metrics, files, run.info.status, mlflow.__version__]))
"""
READ_WANDB = """
import json, pathlib, sys, wandb
from wandb.proto import wandb_internal_pb2 as pb

def records(data):  # the log format of LevelDB, which the library writes: blocks of 32 KiB, records in pieces
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield pb.Record.FromString(whole)
            whole = b""

folder = pathlib.Path(sys.argv[1])
params, metrics = {}, {}
[log] = folder.glob("*.wandb")
for record in records(log.read_bytes()):
    for update in (record.run.config.update if record.HasField("run") else ()):
        params[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
    for update in (record.summary.update if record.HasField("summary") else ()):
        metrics[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
files = sorted(each.name for each in (folder / "files").iterdir())
print(json.dumps([params, metrics, files, "FINISHED", wandb.__version__]))
"""


def main() -> int:
    """Print what each tool has of a run; 1 where something is missing or a key is found."""
    shutil.rmtree(FOLDER / "runs", ignore_errors=True)
    stem = FOLDER / "runs" / "calm"
    server = ServerInfo(model="tiny", gpu="H100", max_num_seqs=8)
    command = f"vtwin observe --url http://me:pw@host --api-key {KEY}"
    write_trace(observed(workload(40, rate=4, seed=3)).with_header(server=server, command=command), stem)
    [load] = report_runs([stem]).loads
    os.environ["OPENAI_API_KEY"] = KEY
    expected = logged_run(load, page=stem.with_name("calm.report.html"))
    failures = 0
    for tool, option, reader in (("mlflow", "store", READ_MLFLOW), ("wandb", "speed", READ_WANDB)):
        python = installed(tool)
        environment = {**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": "", "HOME": str(FOLDER / "home")}
        environment["MLFLOW_ALLOW_FILE_STORE"] = "true"
        asked = [str(python.with_name("vtwin")), "report", "calm", f"--{tool}", option]
        told = subprocess.run(
            asked, cwd=stem.parent, env=environment, check=True, capture_output=True, text=True
        )
        place = told.stderr.strip().rpartition(": ")[2] if tool == "wandb" else str(stem.parent / option)
        read = subprocess.run(
            [python, "-c", reader, place], env=environment, check=True, capture_output=True, text=True
        )
        params, metrics, files, status, version = json.loads(read.stdout.splitlines()[-1])
        problems = [
            *(f"parameter {name}" for name, value in expected.params.items() if params.get(name) != value),
            *(f"metric {name}" for name, value in expected.metrics.items() if metrics.get(name) != value),
            *(f"file {each.name}" for each in expected.files if each.name not in files),
            *([] if status == "FINISHED" else [f"status {status}"]),
            *(f"a key in {file}" for file in kept(Path(place)) if KEY.encode() in file.read_bytes()),
        ]
        failures += bool(problems)
        counts = f"{len(params)} parameters, {len(metrics)} metrics, {len(files)} files"
        print(
            f"{tool} {version}: {counts}: {'as logged' if not problems else 'WRONG: ' + ', '.join(problems)}"
        )
    return int(failures > 0)


def kept(place: Path) -> list[Path]:
    """Return the files of the library's own: the trace itself is as it is on disk."""
    return [file for file in place.rglob("*") if file.is_file() and not file.name.startswith("calm")]


def installed(extra: str) -> Path:
    """Return the Python of a virtual environment with vtwin and one of its extras."""
    folder = FOLDER / f"{extra}-venv"
    python = folder / "bin" / "python"
    if not python.is_file():
        venv.create(folder, with_pip=True)
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        source = (
            FOLDER / "source"
        )  # a build in the project's own folder would leave a second copy of it there
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for part in PARTS:
            shutil.copy(ROOT / part, source)
        for room in ROOMS:
            shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([*install, f"{source}[{extra}]"], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
