"""Tiny checkpoints with random weights, saved as real ones are: readers of questions and translators."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    NllbTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

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


def save_nllb(folder: Path, texts: Sequence[str], codes: Sequence[str], *, seed: int = 1) -> None:
    """Save an NLLB of two layers, whose tokenizer has pairs of letters of some texts, and codes of languages."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=200, special_tokens=special, show_progress=False))
    trained = json.loads(bpe.to_str())["model"]
    tokenizer = NllbTokenizer(
        vocab=trained["vocab"],
        merges=[tuple(merge) for merge in trained["merges"]],
        additional_special_tokens=list(codes),
        src_lang=codes[0],
    )
    tokenizer.save_pretrained(folder)
    _save(M2M100ForConditionalGeneration, _m2m100(len(tokenizer)), folder, seed, 12.0)


def save_m2m100(folder: Path, texts: Sequence[str]) -> None:
    """Save an M2M100 of two layers, with a sentencepiece model of some texts and the codes of all its languages."""
    import sentencepiece

    folder.mkdir(exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(folder / "trained"), vocab_size=60, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "trained.model"))
    words = [pieces.id_to_piece(n) for n in range(3, pieces.get_piece_size())]
    vocabulary = {word: n for n, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    (folder / "trained.json").write_text(json.dumps(vocabulary))
    tokenizer = M2M100Tokenizer(str(folder / "trained.json"), str(folder / "trained.model"))
    tokenizer.save_pretrained(folder)
    for name in ("trained.json", "trained.model", "trained.vocab"):
        (folder / name).unlink()
    _save(M2M100ForConditionalGeneration, _m2m100(max(tokenizer.id_to_lang_token) + 1), folder, 1, 12.0)


def _m2m100(words: int) -> M2M100Config:
    return M2M100Config(
        vocab_size=words,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=1024,
    )


def _save(kind: Any, config: Any, folder: Path, seed: int, scale: float = 6.0) -> None:
    """Save a random model with weights so large that what it prefers is far from even."""
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and "shared" not in name:  # not the words' own vectors: it would write one again and again
                p.mul_(scale)
    model.save_pretrained(folder)
