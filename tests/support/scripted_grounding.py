"""A small LM and an encoder that answer from plain data, for tests of grounding; `asked` counts their calls."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from tests.support.scripted_lm import ScriptError
from toolformer_core.grounding.encoders import Embeddings, normalised
from toolformer_core.lm.base import Draw
from toolformer_core.records import Prompt, digest_of
from toolformer_core.syntax import find_close

Key = TypeVar("Key")
Value = TypeVar("Value")


class ScriptedSmallLM:
    """Answers prompts and writes calls as the script says.

    Args:
        calls: (key of the prompt's tool, the text after the prompt's head) -> what follows " ["; a text without the
            closing "]" is a call that does not end; None: the text does not fit into the context.
    """

    def __init__(
        self, answers: Mapping[str, str] | None = None, calls: Mapping[tuple[str, str], str | None] | None = None
    ) -> None:
        self._answers = dict(answers or {})
        self._calls = dict(calls or {})
        self.name = "scripted"
        self.tokens = 0  # words read
        self.asked = 0  # calls of the model

    @property
    def digest(self) -> str:
        return digest_of("scripted small LM", self.name, repr(sorted(self._answers.items())), repr(self._calls))

    def answers(self, prompts: Sequence[str], *, max_tokens: int) -> list[str]:
        """See `HFSmallLM.answers`; the length has no effect."""
        self._count(prompts)
        return [self._scripted(self._answers, prompt) for prompt in prompts]

    def calls(
        self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = "", top_p: float | None = None
    ) -> list[Draw | None]:
        """See `HFSmallLM.calls`; length, name and top_p have no effect."""
        self._count(texts)
        out: list[Draw | None] = []
        for text in texts:
            written = self._scripted(self._calls, (prompt.tool, text))
            close = None if written is None else find_close(written)
            out.append(None if written is None else Draw(written[:close], close is not None))
        return out

    def choose(self, prompts: Sequence[str], options: Sequence[str]) -> list[int | None]:
        """See `HFSmallLM.choose`: the option that the scripted answer to a prompt begins with; None if it has none."""
        self._count(prompts)
        answers = [self._scripted(self._answers, prompt).strip() for prompt in prompts]
        return [next((n for n, option in enumerate(options) if a.startswith(option)), None) for a in answers]

    def _count(self, texts: Sequence[str]) -> None:
        self.asked += len(texts)
        self.tokens += sum(len(text.split()) for text in texts)

    @staticmethod
    def _scripted(script: Mapping[Key, Value], request: Key) -> Value:
        if request not in script:
            raise ScriptError(f"nothing is scripted for {str(request)[:200]!r}")
        return script[request]


class ScriptedEncoder:
    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self._vectors = dict(vectors)
        self.asked: list[str] = []  # every text that was embedded, in order

    @property
    def digest(self) -> str:
        return digest_of("scripted encoder", repr(sorted(self._vectors.items())))

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.asked += texts
        for text in texts:
            if text not in self._vectors:
                raise ScriptError(f"no embedding is scripted for {text[:200]!r}")
        return normalised(np.asarray([self._vectors[text] for text in texts]))
