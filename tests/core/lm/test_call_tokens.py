"""A call has the same tokens wherever it is read or written, whatever a tokenizer merges around it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.fakes import FakeTool
from tests.support.examples_of_c_star import an_example
from tests.tiny import sentencepiece, tiny_lm, tokenizer
from toolformer_core.decode.records import DecodeEvent, Finished, GenerationSettings
from toolformer_core.decode.sequence import DecodeSequence, ModelInfo
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import TokenizerError
from toolformer_core.export.tokens import token_rows
from toolformer_core.finetune.program import train
from toolformer_core.finetune.recipe import Job
from toolformer_core.finetune.texts import encode_texts
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.tokens import encode, encode_following
from toolformer_core.lm.windowing import ScoreSequence, score_requests
from toolformer_core.records import Example, ToolResponse
from toolformer_core.syntax import call_pieces

MERGES = (" [Calculator(", "[Calculator(", " [Calculator(27", " [", "Calculator(", ") ->", " ->", "]", "].", "]\n\n")
WORDS = ["Of 587 books 58 are lent, so", "so", "The sum is 27", "(it is", "1.5 times", "a\n"]
BEHIND = [" 529 remain", ". Then so", "\n\nThe end", "The sum", ", so it is", " (of 35)", "1 it is"]
INPUTS = ["587 - 58", "27 + 8", "(1.5) * 2", "a [b] c", ""]
RESPONSES = ["529", "35.", "(it is)", "", "The sum of 27"]


def words() -> list[str]:
    calls = [f" [Calculator({given}) -> {said}]" for given in INPUTS for said in RESPONSES]
    return [*WORDS, *BEHIND, *calls, *(f"{word}{call}{after}" for word in WORDS for call in calls for after in BEHIND)]


@cache
def family(kind: str) -> Any:
    """A tokenizer without added tokens; `run-on` is trained on calls and merges across every border there is."""
    if kind == "bytes":
        return tokenizer()
    if kind == "split":
        return tokenizer(merged_trigger=False)
    if kind == "sentencepiece":
        return sentencepiece()
    spaced: dict[str, Any] = {"vocab_size": 300, "special_tokens": ["<end>", "<unk>"], "show_progress": False}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    in_bytes = {"vocab_size": 600, "special_tokens": ["<end>"], "initial_alphabet": alphabet, "show_progress": False}
    no_prefix = {"continuing_subword_prefix": ""}
    model, trainer = {
        "unigram": (models.Unigram(), trainers.UnigramTrainer(**spaced, unk_token="<unk>")),
        "wordpiece": (
            models.WordPiece(unk_token="<unk>", **no_prefix), trainers.WordPieceTrainer(**spaced, **no_prefix)
        ),
        "run-on": (models.BPE(), trainers.BpeTrainer(**in_bytes)),
    }[kind]  # fmt: skip
    coded = Tokenizer(model)
    if kind == "run-on":
        coded.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        coded.decoder = decoders.ByteLevel()
    else:
        coded.pre_tokenizer, coded.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    coded.train_from_iterator(words(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=coded, bos_token="<end>", eos_token="<end>", unk_token="<unk>")


@cache
def coded_with(kind: str, added: frozenset[str]) -> Any:
    coded = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(family(kind).backend_tokenizer.to_str()),
        bos_token="<end>",
        eos_token="<end>",
    )
    coded.add_tokens(sorted(added))
    return coded


coded_any = st.builds(
    coded_with,
    st.sampled_from(["bytes", "split", "sentencepiece", "unigram", "wordpiece", "run-on"]),
    st.frozensets(st.sampled_from(MERGES), max_size=3),
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Texts of one to three calls, two of which may follow each other."""
    text, calls = draw(st.sampled_from(WORDS)), []
    for input_ in draw(st.lists(st.sampled_from(INPUTS), min_size=1, max_size=3, unique=True)):
        calls.append((len(text), "calculator", input_, draw(st.sampled_from(RESPONSES))))
        text += draw(st.sampled_from(["", *BEHIND]))
    return an_example(text, *calls)


def read_back(coded: Any, ids: Sequence[int]) -> str:
    """Return the text of tokens, without the space that tokenizers of the older Llama kind begin with."""
    return str(coded.decode(ids)).removeprefix(" " if coded.decode(coded.encode("a")) == " a" else "")


def decoded(coded: Any, example: Example, wanted: Sequence[int]) -> tuple[list[int], int]:
    """Return the tokens of a sequence whose model wants to write some, and how many calls were asked."""
    info = ModelInfo(coded, tuple(encode_following(coded, " [")), frozenset(), 4096, {"Calculator": "calculator"})
    events: list[DecodeEvent] = []
    settings = GenerationSettings(max_new_tokens=900, max_calls=9, max_call_tokens=200)
    sequence = DecodeSequence(info, encode(coded, example.text[: example.calls[0].start]), settings, events.append, 0)
    responses = iter([call.response for call in example.calls])
    while len(sequence.ids) < len(wanted) and not sequence.finished:
        if sequence.advance(wanted[len(sequence.ids)], len(coded), lambda: 0):
            sequence.answer(ToolResponse(next(responses)), 0.0)
    sequence.end("stop")
    (last,) = [event for event in events if isinstance(event, Finished)]
    return sequence.ids, len(last.generation.calls)


@given(examples(), coded_any)
def test_decoding_has_the_tokens_of_training_before_it(example: Example, coded: Any) -> None:
    (piece,) = encode_texts(coded, [example.text], start=None, end=None, length=5000)
    row = piece.ids.tolist()
    pieces = call_pieces(example.text)
    if all(read_back(coded, coded.encode(piece)) == piece for piece in pieces):  # some put a space behind added tokens
        assert read_back(coded, row) == example.text
    assert decoded(coded, example, row) == (row, len(example.calls))
    (exported,) = token_rows(coded, [example], start=None, end=None)
    assert exported.input_ids == row
    assert "".join(exported.texts) == example.text


@given(examples(), coded_any)
def test_scoring_reads_a_call_in_the_tokens_of_training(example: Example, coded: Any) -> None:
    start, end = example.calls[0].start, example.calls[0].end
    read: list[ScoreSequence] = []
    model = PromptTokenizer(coded, name="m", bos=None, context_lengths=[4096])
    score_requests(model, [ScoreRequest(example.text[start:end], "so", 0, 1)], lambda s: read.extend(s) or [], 4096)
    row = encode(coded, example.text)[len(encode(coded, example.text[:start])) :]
    assert read[0].ids.tolist()[: read[0].shift] == row[: read[0].shift]
    assert len(row) == read[0].shift or example.text[end:]


def test_the_tokens_of_a_call_that_a_tokenizer_merges() -> None:
    # `]` and `.` are one token of this tokenizer, and so is ` [Calculator(`; decoding writes the `]` before the `.`
    coded = coded_with("bytes", frozenset({" [Calculator(", "]."}))
    (row,) = token_rows(coded, [an_example("so.", (2, "calculator", "27", "27"))], start=None, end=None)
    assert [text for text in row.texts if "[" in text or "]" in text] == [" [", "]"]
    assert row.input_ids[:3] == coded.encode("so [")[:3]


def test_a_tokenizer_whose_calls_no_decoding_finds_is_refused(tmp_path: Path) -> None:
    coded = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<end>", *"[ ] ( ) - > 1 Fake".split()])}, "<end>"))
    coded.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # `->` is two words, and read back as `- >`
    words = PreTrainedTokenizerFast(tokenizer_object=coded, bos_token="<end>", eos_token="<end>")
    lm = tiny_lm(coded=words)
    with pytest.raises(
        TokenizerError, match=r'model \'llama\' cannot call tools: .* decoded as "\[ Fake \( 1 \) - > 1 \]"'
    ):
        Toolformer(lm, [FakeTool({})])
    Toolformer(lm, [])  # without tools it writes
    lm.hf_model.model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    (tmp_path / "train.jsonl").write_text('{"text": "1 [Fake(1) -> 1] 1"}\n', encoding="utf-8")
    with pytest.raises(TokenizerError, match="cannot call tools"):
        train(Job(str(tmp_path / "model"), dev=None, device="cpu"), tmp_path)
