"""Tiny random models of several families, and the plain way to compute what the engine does: without cache or batch."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    GPT2Config,
    GPTJConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import Prompt

TEXTS = [
    "Out of 1400 participants, 400 (or 29 %) passed the test.",
    "x",
    "The Nile is 6,853 km long; its source is the White Nile [citation needed] -> see below.",
    "Ünïcödé 日本語 emoji 🙂 and\nline breaks\n\n  and  spaces ",
    "A shorter text, with 27 + 4 * 2 = 35 in it.",
]
PROMPT = Prompt(
    "calculator",
    "Add calls like [Calculator(1 + 2)].\n\nInput: It is 3 = 3.\nOutput: It is [Calculator(1 + 2)] 3.\n\nInput: ",
    "\nOutput:",
)


@cache
def tokenizer(merged_trigger: bool = True, vocabulary: int = 400) -> PreTrainedTokenizerFast:
    """A byte-level BPE; without `merged_trigger` " [" is two tokens."""
    bpe = Tokenizer(models.BPE())
    words = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+" if merged_trigger else r"\p{L}+|\p{N}|\s|[^\s\p{L}\p{N}]"
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(itertools.chain(TEXTS, [PROMPT.head] * 3, [" [ [ [ x [ y"] * 9), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<end>", eos_token="<end>")


@cache
def sentencepiece() -> PreTrainedTokenizerFast:
    """A tokenizer of the older Llama kind: a space is written as a letter, and put in front of every text."""
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.pre_tokenizer = pre_tokenizers.Split(Regex(r"▁?\p{L}+|▁?\p{N}|▁?[^\s\p{L}\p{N}▁]+|▁|\s+"), behavior="isolated")
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<end>", "<unk>", *bytes_], show_progress=False)
    bpe.train_from_iterator(itertools.chain(TEXTS, [PROMPT.head] * 3, [" [ [ [ x [ y"] * 9), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<end>", eos_token="<end>")


def tiny_config(family: str, context: int, v: int, width: int = 32, inner: int = 48, **more: Any) -> Any:
    """The configuration of a family with two layers of four heads and v words."""
    ends = {"bos_token_id": 0, "eos_token_id": 0, **more}
    gpt = {"vocab_size": v, "n_embd": width, "n_layer": 2, "n_head": 4, "n_positions": context, **ends}
    llama = {
        "vocab_size": v,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        **ends,
    }
    return {
        "llama": lambda: LlamaConfig(**llama),
        "qwen2": lambda: Qwen2Config(**{"tie_word_embeddings": True, **llama}),
        "mistral": lambda: MistralConfig(**llama, sliding_window=24),
        "qwen2_mixed": lambda: Qwen2Config(**llama, use_sliding_window=True, sliding_window=24, max_window_layers=1),
        "gemma2": lambda: Gemma2Config(**llama, head_dim=8, final_logit_softcapping=1.0),
        "cohere": lambda: CohereConfig(**llama, logit_scale=0.1),
        "granite": lambda: GraniteConfig(**llama, logits_scaling=4.0),
        "gpt2": lambda: GPT2Config(**gpt),
        "gptj": lambda: GPTJConfig(**gpt, rotary_dim=4),
        "falcon": lambda: FalconConfig(
            vocab_size=v, hidden_size=width, num_hidden_layers=2, num_attention_heads=4, multi_query=False, **ends
        ),
        "gpt_neox": lambda: GPTNeoXConfig(**{k: n for k, n in llama.items() if k != "num_key_value_heads"}),
    }[family]()


def tiny_lm(
    family: str = "llama",
    *,
    context: int = 512,
    merged_trigger: bool = True,
    coded: Any = None,
    vocabulary: int = 0,
    **budgets: int,
) -> TransformersLM:
    """A random two-layer model; `vocabulary` gives it more words than its tokenizer has."""
    coded = coded or tokenizer(merged_trigger)
    return random_lm(family, tiny_config(family, context, max(vocabulary, len(coded))), coded, **budgets)


def random_lm(name: str, config: Any, coded: Any, **budgets: int) -> TransformersLM:
    """A random model of a configuration; weights scaled up so that its distributions are far from flat."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.mul_(6)
    return TransformersLM(model.eval().requires_grad_(False), coded, name=name, digest=name, **budgets)


def saved_in(folder: Path, lm: TransformersLM) -> Path:
    """The folder, with the model and its tokenizer as `save_pretrained` writes them."""
    lm.hf_model.model.save_pretrained(folder)
    lm.hf_model.tokenizer.save_pretrained(folder)
    return folder


def encode(lm: TransformersLM, text: str) -> list[int]:
    return list(lm.hf_model.tokenizer(text, add_special_tokens=False)["input_ids"])


def plain_log_probs(lm: TransformersLM, ids: list[int]) -> torch.Tensor:
    """log-softmax (T, V) of one sequence, the whole model, nothing reused."""
    with torch.inference_mode():
        logits: torch.Tensor = lm.hf_model.model(input_ids=torch.tensor([ids]), use_cache=False).logits
    return torch.log_softmax(logits[0].float(), dim=-1)
