"""The small LM of grounding: it answers queries without tools, and writes the calls of tools from demonstrations.

Both are greedy, and both take many queries at a time. What a query gets does not depend on the others. The large LM
that writes the final call is used through the same interface. This module knows no scores and asks no tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from toolformer_core.lm.base import Draw
from toolformer_core.records import Prompt

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM

__all__ = ["HFSmallLM", "SmallLM", "first_line"]

_ROWS = 64  # answers that are written at a time


class SmallLM(Protocol):
    """A causal LM that grounds."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """Digest of everything that its answers depend on."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens processed so far, padding included."""
        ...

    def answers(self, prompts: Sequence[str], *, max_tokens: int) -> list[str]:
        """Continue each prompt greedily, without calls; a prompt that does not fit the context gives ""."""
        ...

    def calls(self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = "") -> list[Draw | None]:
        """Write the most likely call after [the prompt's head, text]; None for a text that does not fit the context.

        What cannot become a call of the tool `name` need not be written to its end.
        """
        ...


class HFSmallLM:
    """A transformers model as the small LM.

    Args:
        lm: the model.
    """

    def __init__(self, lm: TransformersLM) -> None:
        self.lm = lm

    @property
    def name(self) -> str:
        return self.lm.name

    @property
    def digest(self) -> str:
        return self.lm.digest

    @property
    def tokens(self) -> int:
        """See `SmallLM.tokens`."""
        return self.lm.tokens

    def answers(self, prompts: Sequence[str], *, max_tokens: int) -> list[str]:
        """See `SmallLM.answers`."""
        from toolformer_core.decode.records import GenerationSettings
        from toolformer_core.decode.toolformer import Toolformer

        hf_model = self.lm.hf_model
        room = hf_model.context_length - (hf_model.bos is not None) - max_tokens
        fitting = [i for i, prompt in enumerate(prompts) if 0 < len(hf_model.encode(prompt)) <= room]
        settings = GenerationSettings(max_new_tokens=max_tokens, top_k=0, max_calls=0)
        toolformer = Toolformer(self.lm, [], max_rows=_ROWS)
        try:
            written = toolformer.generate([prompts[i] for i in fitting], settings) if fitting else []
        finally:
            toolformer.close()
        out = [""] * len(prompts)
        for i, generation in zip(fitting, written, strict=True):
            out[i] = generation.text
        return out

    def calls(self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = "") -> list[Draw | None]:
        """See `SmallLM.calls`."""
        return self.lm.call_at_end(prompt, texts, max_tokens=max_tokens, name=name)


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without the spaces around it; "" if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
