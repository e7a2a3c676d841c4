"""The small LM of grounding: it answers queries without tools, and writes the calls of tools from demonstrations.

Both are greedy, unless calls are sampled. What a query gets does not depend on the others. The large LM is one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw
from toolformer_core.records import Prompt, numbers_of
from toolformer_core.syntax import find_close

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM

_ROWS = 64  # answers that are written at a time


class HFSmallLM:
    def __init__(self, lm: TransformersLM) -> None:
        self.lm = lm

    @property
    def tokens(self) -> int:
        """Tokens processed so far, padding included."""
        return self.lm.tokens

    def answers(self, prompts: Sequence[str], *, max_tokens: int) -> list[str]:
        """Continue each prompt greedily, without calls; a prompt that does not fit the context gives ""."""
        return [text or "" for text in self._continuations(prompts, max_tokens, None)]

    def calls(
        self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = "", top_p: float | None = None
    ) -> list[Draw | None]:
        """Write a call, "]" included, after [the prompt's head, text]; None for a text that does not fit the context.

        What cannot become a call of the tool `name` need not be written to its end. Without `top_p` it is the most
        likely call; else one sampled at this top_p, which prompt and text alone decide.
        """
        if top_p is None:
            return self.lm.call_at_end(prompt, texts, max_tokens=max_tokens, name=name)
        sampled = self._continuations([f"{prompt.head}{text} [" for text in texts], max_tokens, top_p)
        ends = [None if text is None else find_close(text) for text in sampled]
        return [
            None if text is None else Draw(text[:end], end is not None) for text, end in zip(sampled, ends, strict=True)
        ]

    def _continuations(self, prompts: Sequence[str], max_tokens: int, top_p: float | None) -> list[str | None]:
        """Continue each prompt without tools; None for one that does not fit the context."""
        from toolformer_core.decode.records import GenerationSettings
        from toolformer_core.decode.toolformer import Toolformer

        hf_model = self.lm.hf_model
        room = hf_model.context_length - (hf_model.bos is not None) - max_tokens
        fitting = [i for i, prompt in enumerate(prompts) if 0 < len(hf_model.encode(prompt)) <= room]
        greedy = GenerationSettings(max_new_tokens=max_tokens, top_k=0, max_calls=0)
        settings = [greedy] * len(fitting)
        if top_p is not None:
            drawn = replace(greedy, temperature=1.0, top_p=top_p, stop=("\n",))
            settings = [replace(drawn, seed=numbers_of("call", prompts[i], count=1)[0]) for i in fitting]
        with closing(Toolformer(self.lm, [], max_rows=_ROWS)) as toolformer:
            written = toolformer.generate([prompts[i] for i in fitting], settings)
        by_index = {i: generation.text for i, generation in zip(fitting, written, strict=True)}
        return [by_index.get(i) for i in range(len(prompts))]

    def choose(self, prompts: Sequence[str], options: Sequence[str]) -> list[int | None]:
        """Return which option the model would write after each prompt and a space, if it could write nothing else.

        At each token only those that continue an option may follow (greedy decoding within the options, which differ).
        A prompt that does not fit the context gives None.
        """
        from toolformer_core.lm.tokens import encode_following

        hf_model = self.lm.hf_model
        lead = [] if hf_model.bos is None else [hf_model.bos]
        written = [encode_following(hf_model.tokenizer, f" {option}") for option in options]
        longest = max(map(len, written), default=0)
        ids = [[*lead, *hf_model.encode(prompt)] for prompt in prompts]
        out: list[int | None] = [None] * len(prompts)
        # the options that are left for each prompt, and how many of their tokens are written
        fitting = [i for i in range(len(prompts)) if options and len(ids[i]) + longest <= hf_model.context_length]
        left = {i: list(range(len(options))) for i in fitting}
        depth = 0
        while left:
            for i, logits in zip(left, self._next_logits([ids[i] for i in left]), strict=True):
                best = max((written[n][depth] for n in left[i]), key=logits.__getitem__)
                left[i] = [n for n in left[i] if written[n][depth] == best]
            depth += 1
            for i, remaining in list(left.items()):
                ended = [n for n in remaining if len(written[n]) == depth]
                if ended or len(remaining) == 1:
                    out[i] = (ended or remaining)[0]
                    del left[i]
                else:
                    ids[i].append(written[remaining[0]][depth - 1])
        return out

    def _next_logits(self, rows: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        """Return the logits of the token after each row.  (V,) each"""
        import torch

        from toolformer_core.lm.hf.batches import hidden_states

        hf_model = self.lm.hf_model
        out: dict[int, NDArray[np.float32]] = {}
        with hf_model.lock, torch.inference_mode():
            for chosen, hidden in hidden_states(hf_model, [np.asarray(row, dtype=np.int64) for row in rows]):
                last = torch.tensor([len(rows[i]) - 1 for i in chosen], device=hf_model.device)
                logits = hf_model.logits(hidden[torch.arange(len(chosen), device=hf_model.device), last])
                out.update(zip(chosen, logits.cpu().numpy(), strict=True))
        return [out[i] for i in range(len(rows))]


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without the spaces around it; "" if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
