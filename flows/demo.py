"""What `toolformer demo` asks for: the embedded model, corpus, passages and phrases, all of the small world."""

from __future__ import annotations

from flows.parameters import BuildParameters
from toolformer_core.smallworld.embedded import CORPUS

__all__ = ["demo_parameters"]


def demo_parameters(data: str) -> BuildParameters:
    """Return the demo's build: the paper's defaults, with foreign passages of three words and more."""
    return BuildParameters(
        corpus=str(CORPUS),
        data=data,
        dataset="demo",
        mt_chunk_tokens=3,
        shard_documents=60,
        licence="Apache-2.0",
    )
