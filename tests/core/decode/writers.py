"""Real transformers that write calls: random models whose next token after a few chosen ones is settled by hand.

Each chosen token has a dimension of the hidden states for itself, from which the output layer raises what may follow: a
digit after "(", but which one comes from attention, as in any random model.
"""

import itertools
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.fakes import FakeTool
from tests.tiny import plain_log_probs, tiny_config
from toolformer_core.lm.hf.engine import TransformersLM

FAMILIES = ["llama", "gpt2", "gptj", "gpt_neox", "qwen2", "mistral"]

Edges = Sequence[tuple[Sequence[int], Sequence[int]]]  # after any of these, one of those

_WIDTH = 64
_OWN = 24  # dimensions for chosen tokens
_OUTPUTS = ("o_proj", "down_proj", "c_proj", "out_proj", "fc_out", "attention.dense", "dense_4h_to_h", "wpe")


def after(tokenizer: Any, text: str) -> list[int]:
    """Tokens of a text that follows others."""
    ids, word = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in ("a" + text, "a"))
    assert ids[: len(word)] == word
    return list(ids[len(word) :])


def call_edges(tokenizer: Any, names: str = "TU", arrow: str = " ->") -> list[tuple[list[int], list[int]]]:
    """Edges that make every " [" a call `[T(digits) ->`, of one of the tools with these one-letter names."""

    def one(text: str) -> int:
        (token,) = tokenizer.convert_tokens_to_ids([text])
        assert tokenizer.decode([token]) == text
        return int(token)

    digits = [one(d) for d in "123456789"]
    tools = [one(n) for n in names]
    arrows = after(tokenizer, arrow)
    edges = [
        ([after(tokenizer, " [")[-1]], tools),
        (tools, [one("(")]),
        ([one("(")], digits),
        (digits[:4], [one(")")]),
        (digits[4:], [one(")"), *digits]),
        ([one(")")], arrows[:1]),
    ]
    return edges + [([a], [b]) for a, b in itertools.pairwise(arrows)]


def writing_lm(
    family: str, coded: Any, edges: Edges, *, context: int = 512, seed: int = 0, **budgets: int
) -> TransformersLM:
    """A random two-layer model of one of `FAMILIES` that follows the edges; at most 24 tokens in all have followers."""
    torch.manual_seed(seed)
    config = tiny_config(family, context, len(coded), _WIDTH, inner=64, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for p in model.parameters():
        if p.ndim == 2:
            p.mul_(12)
    ordinary = _WIDTH - _OWN
    for name, module in model.named_modules():
        if name.endswith(_OUTPUTS):  # GPT-2's Conv1D and position embeddings are (in, out)
            outputs = module.weight if isinstance(module, torch.nn.Linear) else module.weight.T
            outputs[ordinary:] = 0
            if getattr(module, "bias", None) is not None:
                module.bias[ordinary:] = 0
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    embedding[:, ordinary:] = 0
    output[:, ordinary:] = 0
    output[0] = 0  # it does not end by itself
    dimension: dict[int, int] = {}
    for sources, targets in edges:
        for source in sources:
            at = dimension.setdefault(source, ordinary + len(dimension))
            embedding[source, at] = 12.0
            for target in targets:
                output[target, at] += 15.0
                output[target, ordinary:] -= 15.0 / _OWN  # a shift of all dimensions, as by a mean, changes nothing
    return TransformersLM(model, coded, name=family, digest=family, **budgets)


@cache
def merging(*words: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose merges make these words tokens, and nothing stands between a merge and its neighbours."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = ["<end>", *letters]
    merges: list[tuple[str, str]] = []
    for word in (" [", *words):
        written = level.pre_tokenize_str(word)[0][0]
        for n in range(2, len(written) + 1):
            if written[:n] not in vocabulary:
                vocabulary.append(written[:n])
                merges.append((written[: n - 1], written[n - 1]))
    bpe = Tokenizer(models.BPE({w: i for i, w in enumerate(vocabulary)}, merges))
    bpe.pre_tokenizer = level
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<end>", eos_token="<end>")


def speaks(coded: PreTrainedTokenizerFast, written: str, then: str = "", **more: int) -> TransformersLM:
    """A model that writes " [" and this text after a "!", token by token, and after a "]" this other text."""
    (bang,) = after(coded, "!")
    (trigger,) = after(coded, " [")
    ids = [bang, trigger, *after(coded, written)]
    assert len(set(ids)) == len(ids), "a token with two followers"
    edges = [([a], [b]) for a, b in itertools.pairwise(ids)]
    if then:
        rest = [after(coded, "]")[0], *after(coded, then)]
        edges += [([a], [b]) for a, b in itertools.pairwise(rest)]
    return writing_lm("llama", coded, edges, **more)


def torn(coded: PreTrainedTokenizerFast, written: str, seed: int = 0) -> tuple[TransformersLM, float]:
    """A model that writes " [" or "y" after a "!", and this behind " ["; and p(" [") behind "So!"."""
    ids = after(coded, f" [{written}")
    edges = [(after(coded, "!"), [ids[0], *after(coded, "y")]), *(([a], [b]) for a, b in itertools.pairwise(ids))]
    lm = writing_lm("llama", coded, edges, seed=seed)
    p = float(plain_log_probs(lm, [0, *lm.hf_model.encode("So!")])[-1][ids[0]].exp())
    return lm, p


class Double(FakeTool):
    key, name = "double", "T"

    def __init__(self) -> None:
        super().__init__(lambda input, context: str(2 * int(input)))


class Late(FakeTool):
    """Answers after a while that differs from input to input."""

    key, name = "late", "U"

    def __init__(self) -> None:
        super().__init__(lambda input, context: (time.sleep(int(input) % 7 / 500), f"so {input[:2]} it is")[1])
