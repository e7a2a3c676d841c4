"""Whether a model scans, draws and scores as `PlainLM` does."""

from collections.abc import Sequence

import numpy as np
from tiny import PROMPT

from tests.support.plain_lm import PlainLM
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, LanguageModel, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import Prompt

CLOSE = 1e-4  # largest difference of log-probabilities allowed in float32
PREFIXES = ["", " [Calculator(1 + 1) -> ]", " [Calculator(400 / 1400) -> 0.29]"]


def scanned(
    lm: LanguageModel, texts: Sequence[str | Insertion], prompt: Prompt = PROMPT
) -> dict[int, tuple[list[int], list[float]]]:
    """Per text, its positions and log p(" [") there."""
    return {
        text: (positions.tolist(), log_probs.tolist())
        for scan in lm.scan(prompt, texts)
        for text, positions, log_probs in zip(scan.texts, scan.positions, scan.log_probs, strict=True)
    }


def drawn(
    lm: LanguageModel,
    texts: Sequence[str | Insertion],
    temperature: float,
    tokens: int = 6,
    prompt: Prompt = PROMPT,
    *,
    each: int = 2,
    seed: int = 0,
    **more: str,
) -> dict[DrawRequest, Draw]:
    """Samples at the first, a middle and the last position of every text, with seeds from the given one on."""
    out = {}
    for scan in lm.scan(prompt, texts):
        asked = [
            DrawRequest(text, int(positions[at]), seed + 77 * text + 7 * at + n)
            for text, positions in zip(scan.texts, scan.positions, strict=True)
            for at in sorted({0, len(positions) // 2, len(positions) - 1})
            for n in range(each)
        ]
        out.update(zip(asked, scan.draw(asked, max_tokens=tokens, temperature=temperature, **more), strict=True))
        assert scan.draw([], max_tokens=tokens, temperature=temperature) == []
    return out


def asked_of(texts: Sequence[str], prefixes: Sequence[str] = PREFIXES) -> list[ScoreRequest]:
    return [
        ScoreRequest(prefix, text, position, 5)
        for text in texts
        for position in (0, len(text) // 3, len(text) - 1)
        for prefix in prefixes
    ]


def assert_scans_alike(lm: TransformersLM, texts: Sequence[str | Insertion], prompt: Prompt = PROMPT) -> None:
    plain = PlainLM(lm.hf_model)
    ours, theirs = scanned(lm, texts, prompt), scanned(plain, texts, prompt)
    assert ours.keys() == theirs.keys() == set(range(len(texts)))
    for text, (positions, log_probs) in theirs.items():
        assert ours[text][0] == positions
        assert np.abs(np.subtract(ours[text][1], log_probs)).max(initial=0) < CLOSE
    for temperature in (0.0, 1.0):
        assert drawn(lm, texts, temperature, prompt=prompt) == drawn(plain, texts, temperature, prompt=prompt)


def assert_alike(lm: TransformersLM, texts: Sequence[str], prefixes: Sequence[str] = PREFIXES) -> None:
    assert_scans_alike(lm, texts)
    plain, requests = PlainLM(lm.hf_model), asked_of(texts, prefixes)
    for got, wanted in zip(lm.log_probs(requests), plain.log_probs(requests), strict=True):
        assert len(got) == len(wanted)
        assert (np.isnan(got) == np.isnan(wanted)).all()
        assert np.nanmax(np.abs(got - wanted), initial=0) < CLOSE
