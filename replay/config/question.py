"""A TWIN.yaml to start from, as a function; ``vtwin config from-serve`` prints what it returns."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from pathlib import Path

from replay.model.hf_config import read_model_config
from replay.numbers.argument_ranges import GPUS
from replay.twin.start.from_serve import merged, named, start_from_header, start_from_serve, twin_text
from replay.twin.start.serve_flags import MAY_MEAN
from replay.twin.start.written_twin_check import why_not
from traces import ConfigError, read_trace, stem_of
from traces.strict.arguments import ANY_TEXT, PATH, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTwin:
    """A TWIN.yaml to start from. ``obstacle``: why it will not run as it is, None where it does.

    ``doubts``: flags that vtwin does not know and whose names are like those of others, a sentence each.
    """

    text: str
    obstacle: str | None = None
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the file's text."""
        return self.text


@takes(command=ANY_TEXT, from_trace=PATH, gpu=ANY_TEXT, model_config=ANY_TEXT, tp=GPUS, vllm_version=ANY_TEXT)
def start_twin(
    command: str | None = None,
    *,
    from_trace: Path | str | None = None,
    gpu: str | None = None,
    model_config: str | None = None,
    tp: int | None = None,
    vllm_version: str | None = None,
) -> StartedTwin:
    """Return the twin that ``command`` starts, that a trace's header describes, or of both.

    ``command``: ``vllm serve``, ``docker run``, or the file of a manifest; ``from_trace``: says what the command leaves
    open. ``gpu``: whose defaults of vLLM count, and the latency; with it ``model_config``, a config.json or a model
    that ships, and ``tp``. Raises ConfigError where nothing is given or cannot be read.
    """
    if gpu is None and (model_config is not None or tp is not None):
        raise ConfigError("--model-config, --tp: got it without --gpu, expected the GPU, too")
    if model_config is not None:
        read_model_config(model_config)  # checked here, so that an error names the option
    starts = [] if command is None else [start_from_serve(command)]
    if from_trace is not None:
        starts.append(start_from_header(read_trace(from_trace).header, name=stem_of(Path(from_trace)).name))
    if not starts:
        raise ConfigError("'vllm serve …', --from-trace: got neither, expected one of them, or both")
    start = starts[0] if len(starts) == 1 else merged(*starts)
    start = named(start, model_config=model_config, tp=tp, vllm_version=vllm_version)
    text, _ = twin_text(start, gpu=gpu)
    doubts = tuple(note for note in start.notes if MAY_MEAN in note)
    return StartedTwin(text=text, obstacle=why_not(text), doubts=doubts)
