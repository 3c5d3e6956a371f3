"""The official clients against ``vtwin serve``, a part of ``make live``: the openai package, and ``vllm bench serve``.

openai is installed once, into an environment of its own in vtwin-live/. ``vllm bench serve`` runs where ``VLLM_PYTHON``
names the Python of a vLLM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.studies.live.server import call, say

OPENAI = "openai==3.54.0"
FOLDER = Path("vtwin-live")
TWIN = """
engine: {max_num_seqs: 16, max_num_batched_tokens: 1024, num_gpu_blocks: 2000, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 2000, beta1: 10, beta2: 20}}
"""

ASKS = """
import sys
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model == "vtwin"

whole = client.completions.create(model=model, prompt="one two three", max_tokens=7, extra_body={"ignore_eos": True})
assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 7
parts = list(client.completions.create(model=model, prompt="one two three", max_tokens=7, stream=True,
                                       stream_options={"include_usage": True}))
assert "".join(part.choices[0].text for part in parts if part.choices) == whole.choices[0].text
assert parts[-1].usage.completion_tokens == 7

messages = [{"role": "system", "content": "short"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]
chat = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=5)
assert chat.choices[0].message.role == "assistant" and chat.usage.completion_tokens <= 5
parts = list(client.chat.completions.create(model=model, messages=messages, max_completion_tokens=5, stream=True))
assert "".join(part.choices[0].delta.content or "" for part in parts) == chat.choices[0].message.content
assert parts[-1].choices[0].finish_reason == chat.choices[0].finish_reason

def refused(kind, **request):
    try:
        client.completions.create(**{"model": model, "prompt": "a", "max_tokens": 1, **request})
    except kind as error:
        return error
    raise AssertionError(f"{request}: got an answer, expected {kind.__name__}")

assert refused(openai.NotFoundError, model="other").status_code == 404
assert "maximum context length" in str(refused(openai.BadRequestError, max_tokens=10**6))
assert "max_tokens" in str(refused(openai.BadRequestError, max_tokens=0))
refused(openai.BadRequestError, n=2)
wrong = client.with_options(api_key="wrong")
try:
    wrong.models.list()
except openai.AuthenticationError:
    pass
else:
    raise AssertionError("a wrong key got an answer")
try:
    client.models.retrieve("other")
except openai.NotFoundError:
    pass
else:
    raise AssertionError("a model that is not served was found")
print(f"openai {openai.__version__}: models, completions and chat, whole and streamed, and 6 errors")
"""


@contextmanager
def emulated() -> Iterator[str]:
    """Serve a twin with the key "k"; yield its URL."""
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / "twin.yaml"
        twin.write_text(TWIN)
        command = [
            str(Path(sys.executable).with_name("vtwin")),
            "serve",
            "--config",
            str(twin),
            "--port",
            "0",
        ]
        command += ["--api-key", "k"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            yield next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        finally:
            server.terminate()
            server.wait()


def with_openai() -> Path:
    """Return the Python of an environment that has the openai package."""
    place = FOLDER / "openai"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    call(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENAI)
    return python


def bench(python: str, url: str) -> None:
    """Run ``vllm bench serve`` of the vLLM that ``python`` has, and see that every request got all its tokens.

    ``VLLM_TOKENIZER``: a tokenizer's folder, or a name that is downloaded. Raises CalledProcessError where the
    benchmark fails, and AssertionError where it counts otherwise.
    """
    num, tokens, result = 40, 16, FOLDER / "bench.json"
    random = ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", str(tokens)]
    load = ["--num-prompts", str(num), "--request-rate", "20", *random, "--ignore-eos"]
    model = ["--model", "vtwin", "--tokenizer", os.environ.get("VLLM_TOKENIZER", "gpt2"), "--base-url", url]
    kept = ["--save-result", "--result-dir", str(result.parent), "--result-filename", result.name]
    command = [str(Path(python).with_name("vllm")), "bench", "serve", *model, *load, *kept]
    subprocess.run(command, check=True, env={**os.environ, "OPENAI_API_KEY": "k"})
    found = json.loads(result.read_text())
    counted = (found["completed"], found["total_output_tokens"])
    if counted != (num, num * tokens):
        raise AssertionError(
            f"vllm bench serve: got (requests, tokens) {counted}, expected {(num, num * tokens)}"
        )
    say(f"vllm bench serve: {num} requests, {num * tokens} tokens, mean TTFT {found['mean_ttft_ms']:.1f} ms")


def main() -> int:
    """Run both; return the exit code."""
    FOLDER.mkdir(exist_ok=True)
    asks = FOLDER / "asks.py"
    asks.write_text(ASKS)
    with emulated() as url:
        call(str(with_openai()), str(asks), url)
        python = os.environ.get("VLLM_PYTHON")
        if python is None:
            say("vllm bench serve: skipped, VLLM_PYTHON names no Python with vLLM")
        else:
            bench(python, url)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
