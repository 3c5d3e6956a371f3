"""Which vLLM a container's image has: its tag says it, or nothing does."""

from __future__ import annotations

import re
from lazy_dataclasses import dataclass
from typing import Final

from replay.twin.config_keys import RULES_VERSION

OTHERS_NUMBERS: Final = (
    "lmcache",
    "llm-d",
    "production-stack",
    "dynamo",
    "aibrix",
    "kserve",
    "router",
    "semantic",
)
"""Parts of names of images that have vLLM inside and count versions of their own."""
RUNS_VLLM: Final = re.compile(r"(?:^|/)(?:vllm-openai[-\w]*|vllm[-\w]*|[-\w]*vllm)$")
"""Names of images whose entry point is ``vllm serve`` or that have nothing else to run."""
NO_RELEASE: Final = "vllm_version: the image"
"""How the line on a tag that says no release begins."""
_RELEASE: Final = re.compile(r"v?(0\.\d{1,3}(?:\.\d{1,3}){0,2}(?:rc\d+|\.post\d+|\.dev\d+)?)(?![\d.])")
_INSIDE: Final = re.compile(r"(?:^|[_+-])vllm[_-]?v?(0\.\d{1,3}(?:\.\d{1,3}){0,2})(?![\d.])")
_PACKAGE: Final = re.compile(
    r"vllm(?:\[[\w,-]*\])?(?:==|@)v?(0\.\d{1,3}(?:\.\d{1,3}){0,2}(?:rc\d+|\.post\d+)?)(?![\w.])"
)
_PLAIN: Final = re.compile(r"[\w][\w.-]{0,80}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's image: its name without registry's port and digest, its tag ("" if none), whether it is pinned."""

    name: str
    tag: str
    is_pinned: bool

    @property
    def runs_vllm(self) -> bool:
        """Whether what stands behind its name are words of ``vllm serve``."""
        return RUNS_VLLM.search(self.name) is not None

    @property
    def version(self) -> str | None:
        """The release of vLLM that the tag says, None where it says none."""
        inside = _INSIDE.search(self.tag)
        if inside is not None:
            return inside[1]
        is_its_own = "vllm" in self.name and not any(part in self.name for part in OTHERS_NUMBERS)
        release = _RELEASE.match(self.tag) if is_its_own else None
        return None if release is None else release[1]

    def note(self) -> str | None:
        """Return the line on a tag that says no release; None where it says one."""
        if self.version is not None:
            return None
        if self.tag and _PLAIN.fullmatch(self.tag):
            said = f"'s tag {self.tag} is no release of vLLM"
        else:
            said = " has a digest and no tag" if self.is_pinned else " has no tag"
        return f"{NO_RELEASE}{said}; the rules of {RULES_VERSION} are taken, --vllm-version names others"


def read_container_name(written: str) -> ContainerName:
    """Return an image as ``docker run`` and manifests name it: ``host:port/name:tag@sha256:digest``."""
    named, at, _ = written.strip().partition("@")
    before, slash, last = named.rpartition("/")
    name, _, tag = last.partition(":")
    return ContainerName(name=f"{before}{slash}{name}".lower(), tag=tag, is_pinned=bool(at))


def version_of_package(word: str) -> str | None:
    """Return the release that a word of pip or uv asks for (``vllm==0.12.0``, ``vllm@0.12.0``), else None."""
    found = _PACKAGE.fullmatch(word)
    return None if found is None else found[1]
