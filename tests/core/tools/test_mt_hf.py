from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import M2M100Config, M2M100ForConditionalGeneration, PreTrainedTokenizerFast

from toolformer_core.errors import ModelError
from toolformer_core.tools.mt_hf import NLLB_CODES, HuggingFaceTranslator

SEED = 1  # of random weights that say something
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "eng_Latn", "deu_Latn", "der", "hund", "the", "dog"]


def save_model(folder: Path, words: list[str]) -> None:
    """Save a seq2seq model of NLLB's architecture with a vocabulary of a few words and random weights."""
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=[word for word in words if "_" in word],
    ).save_pretrained(folder)
    torch.manual_seed(SEED)
    config = M2M100Config(
        vocab_size=len(words),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
    )
    M2M100ForConditionalGeneration(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nllb")
    save_model(path, WORDS)
    return path


def test_a_checkpoint_translates_the_same_each_time(folder: Path) -> None:
    translator = HuggingFaceTranslator(str(folder), max_tokens=8)
    first = translator.translate("der hund", ["de", "nl"])
    assert first is not None
    assert set(first.split()) <= {"der", "hund", "the", "dog"}  # no special token is left
    assert pickle.loads(pickle.dumps(translator)).translate("der hund", ["de"]) == first


def test_english_and_languages_without_a_code_are_not_translated() -> None:
    translator = HuggingFaceTranslator("never/loaded")
    assert translator.translate("the dog", ["en", "de"]) is None
    assert translator.translate("x", ["tlh"]) is None
    assert translator.translate("x", []) is None


def test_the_digest_follows_the_files(folder: Path, tmp_path: Path) -> None:
    save_model(tmp_path, [*WORDS, "more"])
    assert HuggingFaceTranslator(str(folder)).digest == HuggingFaceTranslator(str(folder)).digest
    assert HuggingFaceTranslator(str(tmp_path)).digest != HuggingFaceTranslator(str(folder)).digest


def test_a_model_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot load the translation model"):
        HuggingFaceTranslator(str(tmp_path)).translate("der hund", ["de"])
    save_model(tmp_path, [word for word in WORDS if word != "eng_Latn"])
    with pytest.raises(ModelError, match="does not know the language code eng_Latn"):
        HuggingFaceTranslator(str(tmp_path)).translate("der hund", ["de"])


def test_the_codes_have_nllbs_form() -> None:
    assert all(code[3] == "_" and code[4:].istitle() and len(code) == 8 for code in NLLB_CODES.values())
    assert "en" not in NLLB_CODES
