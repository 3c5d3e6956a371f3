"""Other requests than completions, sent by ``vtwin observe`` to a real vLLM: what it answers, and what is recorded.

A part of ``make live``; results in vtwin-live/. Answers, reasoning, embeddings, transcriptions and classes have a
server each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from tests.studies.live.server import VLLM, Installation, call, installation, say, serving

OUTPUT = Path("vtwin-live")
NUM_REQUESTS = 20
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 9}},
                "required": ["number"],
                "additionalProperties": False,
            },
        },
    }
]
FIGURES = ("prompt_tokens", "output_tokens", "reasoning_tokens", "ttft_us", "e2e_us")
POOLING = ("--runner", "pooling")
THINKING = """
import json, sys
from pathlib import Path
from transformers import AutoTokenizer
source, target = map(Path, sys.argv[1:])
tokenizer = AutoTokenizer.from_pretrained(source)
tokenizer.add_tokens(["<think>", "</think>"])
tokenizer.save_pretrained(target)
config = json.loads((source / "config.json").read_text())
(target / "config.json").write_text(json.dumps(config | {"vocab_size": len(tokenizer)}))
"""
"""Copies a model with tokens for the begin and the end of reasoning, without which vLLM parses none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is sent: options of ``vtwin observe``."""

    name: str
    options: tuple[str, ...]


SERVERS: dict[str, tuple[tuple[str, ...], tuple[Kind, ...]]] = {
    "generate": (
        ("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        (
            Kind("two answers a prompt", ("--api", "completions", "--n", "2")),
            Kind("two answers a chat", ("--api", "chat", "--n", "2")),
            Kind("a required tool", ("--api", "chat", "--tools", "{tools}", "--tool-choice", "required")),
            Kind("a tool by name", ("--api", "chat", "--tools", "{tools}", "--tool-choice", "look_up")),
            Kind("responses", ("--api", "responses")),
            Kind("messages", ("--api", "messages")),
            Kind(
                "a required tool in a message",
                ("--api", "messages", "--tools", "{tools}", "--tool-choice", "required"),
            ),
        ),
    ),
    "reasoning": (
        ("--reasoning-parser", "deepseek_r1"),
        (
            Kind("reasoning without an end", ("--api", "chat")),
            Kind("thinking in messages", ("--api", "messages")),
        ),
    ),
    "embed": (
        (*POOLING, "--convert", "embed"),
        (
            Kind("embeddings", ("--api", "embeddings", "--batch-inputs", "4")),
            Kind("pooling", ("--api", "pooling", "--batch-inputs", "4")),
            Kind("scores of embeddings", ("--api", "score", "--batch-inputs", "4")),
            Kind("ranks of embeddings", ("--api", "rerank", "--batch-inputs", "4")),
        ),
    ),
    "transcribe": (
        ("--max-model-len", "448"),
        (Kind("transcriptions", ("--api", "transcriptions", "--audio-seconds", "0.02")),),
    ),
    "classify": (
        (*POOLING, "--convert", "classify"),
        (Kind("classes", ("--api", "classify", "--batch-inputs", "4")),),
    ),
}
"""By a server's name: its flags, and what is sent to it."""


def thinking(place: Installation) -> Installation:
    """Return the installation with the model whose tokenizer knows reasoning, made where it is missing."""
    model = place.model.with_name("tiny-thinking")
    if not (model / "config.json").exists():
        call(place.python, "-c", THINKING, str(place.model), str(model))
    return replace(place, model=model)


def listening(place: Installation) -> tuple[Installation, dict[str, str]]:
    """Return the installation with a Whisper, made where it is missing, and the environment of what reads its sounds.

    vLLM reads them by packages of its extra ``audio``, which are installed beside it.
    """
    model, libraries = place.model.with_name("tiny-whisper"), place.model.with_name("audio-libraries")
    if not (model / "config.json").exists():
        call(place.python, str(Path(__file__).with_name("make_whisper.py")), str(model))
    if not libraries.exists():
        call(
            place.python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(libraries),
            "soundfile",
            "av",
        )
    return replace(place, model=model), {"PYTHONPATH": str(libraries)}


def observed(url: str, kind: Kind, *, tools: Path) -> dict[str, Any]:
    """Send one kind of requests; return the figures of the run, or its words where it failed."""
    stem = OUTPUT / f"kind-{kind.name.replace(' ', '-')}"
    words = [word.format(tools=tools) for word in kind.options]
    load = ["--rate", "5", "--num-requests", str(NUM_REQUESTS), "--prompt-tokens", "64"]
    answers = [] if "--batch-inputs" in words else ["--output-tokens", "24"]
    command = [sys.executable, "-m", "vtwin", "observe", "--url", url, *words, *load, *answers]
    run = subprocess.run(
        [*command, "--output", str(stem), "--overwrite", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return {"exit": run.returncode, "says": run.stderr[-600:]}
    return dict(json.loads(run.stdout))


def main(only: str = typer.Option("", help="One server of these alone.")) -> None:
    """Start each server, send it each kind, print what came of it and write it down."""
    OUTPUT.mkdir(exist_ok=True)
    place, tools = installation(), OUTPUT / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    found: dict[str, dict[str, Any]] = {}
    for name, (flags, kinds) in SERVERS.items():
        if only in ("", name):
            model = thinking(place) if name == "reasoning" else place
            environment: dict[str, str] = {}
            if name == "transcribe":
                model, environment = listening(place)
            log = OUTPUT / f"kinds-{name}.log"
            with serving(model, log=log, flags=flags, environment=environment) as url:
                found |= {kind.name: observed(url, kind, tools=tools) for kind in kinds}
    (OUTPUT / "kinds.json").write_text(json.dumps({"vllm": VLLM, "kinds": found}, indent=1))
    for name, document in found.items():
        say(f"{name}: {told(document)}")
    if any(document.get("num_by_status") != {"ok": NUM_REQUESTS} for document in found.values()):
        raise typer.Exit(1)


def told(document: dict[str, Any]) -> str:
    """Return what the server answered, in a line; the figures are medians."""
    if "says" in document:
        return f"exit {document['exit']}, {document['says']}"
    medians = {name: document[name]["p50"] for name in FIGURES}
    known = {name: value for name, value in medians.items() if value is not None}
    counts = {
        name: document[name] for name in ("num_by_status", "num_choices", "num_inputs", "num_called_tools")
    }
    return json.dumps(known | {name: value for name, value in counts.items() if value is not None})


if __name__ == "__main__":
    typer.run(main)
