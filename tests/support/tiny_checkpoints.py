"""Tiny checkpoints with random weights, saved as real ones are: readers of questions and translators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

__all__ = ["save_span_model", "save_t5"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?:()'\"-<>/"


def save_span_model(folder: Path, words: Sequence[str], *, seed: int = 1, positions: int = 66) -> None:
    """Save a BERT that marks spans. Words that are not in its vocabulary are spelled by letters."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    spelled = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    vocabulary = {token: n for n, token in enumerate(dict.fromkeys([*special, *spelled, *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
    )
    _save(BertForQuestionAnswering, config, folder, seed)


def save_t5(folder: Path, words: Sequence[str], *, seed: int = 1) -> None:
    """Save a T5. Its words begin with a mark, as sentencepiece's do, and others are spelled by letters."""
    special = ["<pad>", "</s>", "<unk>"]
    tokens = [*special, "▁", *_LETTERS, *(letter.upper() for letter in _LETTERS[:26]), *(f"▁{word}" for word in words)]
    vocabulary = [(token, -float(len(token) < 3) * 5 - 1) for token in dict.fromkeys(tokens)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    tokenizer.normalizer = normalizers.Replace("\n", " ")  # as T5's
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = T5Config(
        vocab_size=len(vocabulary), d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    _save(T5ForConditionalGeneration, config, folder, seed)


def _save(kind: Any, config: Any, folder: Path, seed: int) -> None:
    """Save a random model with weights so large that what it prefers is far from even."""
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.mul_(6)
    model.save_pretrained(folder)
