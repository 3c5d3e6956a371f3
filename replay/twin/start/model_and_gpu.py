"""Which model a server's names for it mean, and the message for a server whose model or GPU is not known.

A fit that knows both has priors and more models of a step to choose from. A vLLM server tells its model's name
(``/v1/models``) and never its GPU; a name that its operator made up (``--served-model-name``) means nothing here.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from replay.model.gpus import gpus_like, shipped_gpus
from replay.model.shipped_models import model_name, shipped_config
from traces.strict.whole_file import is_a_file

if TYPE_CHECKING:
    from traces import ServerInfo

EXAMPLE_GPU = "H100"
ANY_CONFIG = "CONFIG.json"
EMULATED = "vtwin:"
"""A part of a value's source that only an emulated server reports."""


def model_of(server: ServerInfo) -> str | None:
    """Return the name by which a server's model is known here: the first that ships, else the served name."""
    names = (server.model, server.model_root)
    return next((name for name in names if name and shipped_config(name) is not None), server.model)


def config_at_hand(model: str | None) -> str | None:
    """Return a TWIN.yaml's value for a model whose config.json is available: its name if it ships, else the file.

    ``model``: such a name, the file, or its folder; None where there is none.
    """
    if model is None:
        return None
    for file in (Path(model), Path(model) / "config.json"):
        if is_a_file(file):
            return str(file.resolve())
    return model if shipped_config(model) is not None else None


def is_emulated(server: ServerInfo) -> bool:
    """Return whether a server is one of ``vtwin serve``, which computes on no GPU."""
    return any(EMULATED in each for each in server.sources.values())


def missing_note(server: ServerInfo) -> str | None:
    """Return the line that says what is not known of a server, and which options would help.

    None where model and GPU are known, and for an emulated server, which has no GPU.
    """
    model = model_of(server)
    ships = model is not None and shipped_config(model) is not None
    if (_is_gpu(server.gpu) and ships) or is_emulated(server):
        return None
    return f"{known_text(server)}. {what_helps(server)}"


def known_text(server: ServerInfo, *, gpu: str | None = None, model_config: str | None = None) -> str:
    """Return what is known of a server's model and GPU, in words; ``gpu`` and ``model_config``: given by the user."""
    name = gpu or server.gpu
    model = _model_text(server) if model_config is None else f"the model is {model_config}"
    if name is None:
        return f"{model}; the GPU is not known"
    unknown = "" if _is_gpu(name) else f", which vtwin does not know ({gpus_like(name)})"
    return f"{model}; the GPU is {name}{unknown}"


def _is_gpu(name: str | None) -> bool:
    return name is not None and any(each.is_called(name) for each in shipped_gpus())


def what_helps(server: ServerInfo, *, gpu: str | None = None, model_config: str | None = None) -> str:
    """Return the sentence with the options that name a server's GPU and model; ``gpu`` and ``model_config``: given."""
    known_gpu, model = gpu or server.gpu, model_config or _suggested(server)
    known_gpu = known_gpu if _is_gpu(known_gpu) else None
    words = ["--gpu", known_gpu or EXAMPLE_GPU, "--model-config", model or ANY_CONFIG]
    holders = [f"your GPU for {EXAMPLE_GPU}"] if known_gpu is None else []
    if model is None:
        holders.append(f"the model's config.json, or the name of a model that ships, for {ANY_CONFIG}")
    if server.tensor_parallel is None:
        holders.append("and --tp N where N GPUs share each layer")
    place = f" ({'; '.join(holders)})" if holders else ""
    return (
        f"Add {' '.join(words)}{place} to vtwin calibrate and vtwin config from-serve: a fit then has priors and more "
        "models of a step to choose from"
    )


def _suggested(server: ServerInfo) -> str | None:
    """Return the name of a shipped model that one of the server's names, or the end of its path, seems to mean."""
    for name in (server.model, server.model_root):
        for part in (name, PurePosixPath(name).name) if name else ():
            if shipped_config(part) is not None:
                return part if part == name else _full(part)
    return None


def _full(name: str) -> str:
    file = shipped_config(name)
    return name if file is None else model_name(file)


def _model_text(server: ServerInfo) -> str:
    """Return what is known of the model: its name as read, from where, and whether it ships."""
    model, suggested = model_of(server), _suggested(server)
    if model is None:
        return "the model is not known"
    key = "model" if model == server.model else "model_root"
    source = server.sources.get(key)
    named = f"model {model}" + (f" (from {source})" if source else "")
    if suggested == model:
        return f"{named} ships with vtwin"
    if suggested is not None:
        return f"{named} may be {suggested}, which ships with vtwin"
    return f"{named} does not ship with vtwin"
