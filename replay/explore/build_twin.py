"""A twin out of a form: the keys of TWIN.yaml with what is known of each, and the file that their values make.

The form is the table of keys that the reader and the reference page are made of; what is wrong is said by the reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from replay.console.twins import check_starts
from replay.explore.knobs import first_sentence
from replay.model.gpus import shipped_gpus
from replay.model.shipped_models import shipped_models
from replay.twin.config_keys import all_keys
from replay.twin.config_read import read_config_text
from replay.twin.keys.key import Key
from traces import ConfigError

MAIN = (
    *("vllm_version", "hardware.gpu", "hardware.tp", "latency.model", "latency.model_config"),
    *(
        "engine.max_num_seqs",
        "engine.max_num_batched_tokens",
        "engine.num_gpu_blocks",
        "engine.max_model_len",
    ),
    *("cluster.instances", "cluster.routing.policy"),
)
"""The keys that stand first."""
SECTIONS = ("engine", "hardware", "latency", "latency.coefficients", "cluster", "cluster.routing")
"""Sections whose keys the form has; further ones, and lists, are for an editor."""
OF_A_FIT = ("latency.table", "latency.tiles", "cluster.lockstep")
SCALARS = ("integer", "boolean", "fraction", "number", "choice", "text", "decimal")
_PLAIN = re.compile(r"[-+]?[0-9][0-9_.eE+-]*|true|false")
LONGEST = 300
FILE = Path("built.yaml")
"""What it is to be saved as."""
KNOWN = {
    "hardware.gpu": lambda: [each.name for each in shipped_gpus()],
    "latency.model_config": shipped_models,
}
"""Names that the form suggests, where others may be typed, too."""


def form_keys() -> tuple[Key, ...]:
    """Return the keys of the form, the main ones first."""
    found = {each.path: each for each in all_keys() if _is_asked(each)}
    return (*(found[path] for path in MAIN), *(each for path, each in found.items() if path not in MAIN))


def _is_asked(key: Key) -> bool:
    section = key.path.rpartition(".")[0]
    is_own = section in SECTIONS or key.path in MAIN
    return is_own and key.kind in SCALARS and key.path not in OF_A_FIT


def build_form() -> list[dict[str, object]]:
    """Return the form: a row for each key, with its meaning, its default and what it takes."""
    return [
        {
            "path": each.path,
            "kind": each.kind,
            "default": each.default,
            "expected": each.expected.replace("`", ""),
            "choices": list(each.choices),
            "known": KNOWN[each.path]() if each.path in KNOWN else [],
            "meaning": first_sentence(each.meaning),
            "is_main": each.path in MAIN,
        }
        for each in form_keys()
    ]


def twin_text(values: Mapping[str, str]) -> str:
    """Return a TWIN.yaml of these values by their keys. Raises ConfigError on a key that the form does not have."""
    keys = {each.path: each for each in form_keys()}
    lines: list[str] = []
    for path in values:
        if path not in keys:
            raise ConfigError(f"{path[:80]}: got a key that the form does not have, expected one of its own")
    sections: list[str] = []
    ordered = sorted(
        (each for each in all_keys() if each.path in values), key=lambda each: each.path.split(".")[:-1]
    )
    for each in ordered:
        *above, name = each.path.split(".")
        for depth in range(len(above)):
            if sections[: depth + 1] != above[: depth + 1]:
                sections = above[: depth + 1]
                lines.append(f"{'  ' * depth}{above[depth]}:")
        lines.append(f"{'  ' * len(above)}{name}: {_scalar(each, values[each.path])}")
    return "".join(f"{line}\n" for line in lines)


def _scalar(key: Key, text: str) -> str:
    """Return a value as YAML has it: what is no number and no switch as a text in quotes, whatever it holds."""
    if len(text) > LONGEST or not text.isprintable():
        raise ConfigError(f"{key.path}: got {text[:40]!r}, expected one line of at most {LONGEST} characters")
    if key.kind in ("text", "choice"):
        return (
            text
            if re.fullmatch(r"[A-Za-z][\w./-]*", text) and text not in ("true", "false", "null")
            else json.dumps(text)
        )
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def built(values: Mapping[str, str]) -> Iterator[dict[str, object]]:
    """Yield the twin that a form's values make, or what is wrong with them: each fault beside its key."""
    given = {path: text.strip() for path, text in values.items() if text.strip()}
    faults = faults_of(given)
    if faults:
        yield {"kind": "error", "of": "build", "text": faults[0]["text"], "faults": faults}
        return
    text = twin_text(given)
    yield {"kind": "built", "yaml": text, "notes": list(read_config_text(text, FILE).notes)}


def faults_of(given: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what is wrong with a form's values, with the key of each: what the reader says first, then without it.

    A name that is none is taken for the first that the form suggests, since much hangs on a model and a GPU.
    """
    left, faults = dict(given), list[dict[str, str]]()
    while True:
        try:
            check_starts(read_config_text(twin_text(left), FILE))
        except ConfigError as error:
            key = key_at_fault(str(error))
            if key not in left or any(
                key == each["key"] for each in faults
            ):  # of no value, or of one that lacks another
                return faults or [{"key": key, "text": str(error)}]
            faults.append({"key": key, "text": str(error)})
            del left[key]
            if key in KNOWN:
                left[key] = next(iter(KNOWN[key]()))
        else:
            return faults


def key_at_fault(message: str) -> str:
    """Return the key of the form that a fault is about: the longest whose path it begins with; "" for none."""
    place = message.partition(":")[0].strip()
    paths = [each.path for each in form_keys()]
    exact = [path for path in paths if path == place]
    missing = re.match(r"[\w.]+", message)
    near = [path for path in paths if missing is not None and path.startswith(f"{missing[0]}.")]
    return (exact or near or [""])[0]
