"""Translators with a model: NLLB or M2M100, with transformers or, converted to 8-bit weights, with CTranslate2.

The paper's MT tool is NLLB-200 with 600 M parameters. Translations are greedy. The packages are imported on use.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolformer_core.errors import ModelError, UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.records import digest_of
from toolformer_core.tools.hf.batches import BatchedModel, in_batches, write_greedily
from toolformer_core.tools.hf.checkpoint import (
    RESIDENT_AT_MOST,
    Checkpoint,
    Loaded,
    find_checkpoint,
    load_tokenizer,
    load_transformer,
)
from toolformer_core.tools.mt import Translator

VERSION = "2"
_POSITIONS = 1024  # of NLLB and M2M100, where a model does not say
_BATCH_TOKENS = 8_192  # of sources in one batch, padding included
_CONVERTED_BATCH_TOKENS = 4_096
_CODE = re.compile("__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}")
_ENGLISH_NLLB, _ENGLISH_M2M100 = "eng_Latn", "en"
_VOCABULARIES = ("shared_vocabulary.*", "source_vocabulary.*")

# lid.176 names 176 languages as Wikipedia names its editions; NLLB-200 names 202 pairs of language and script. Here are
# the languages that both know. One name means two: `als` is Alemannic for fastText and Tosk Albanian for NLLB. Where
# lid.176 names a group of languages and NLLB its members, the member is the one in which most of Wikipedia's edition is
# written: Bihari in Bhojpuri, Kurdish in Kurmanji, Serbo-Croatian in Latin letters, as Croatian.
# lid.176's name = NLLB's; those that are written in Latin letters without the script.
_LATIN = (
    "af=afr ast=ast az=azj bs=bos ca=cat ceb=ceb cs=ces cy=cym da=dan de=deu eo=epo es=spa et=est eu=eus fi=fin "
    "fr=fra ga=gle gd=gla gl=glg gn=grn hr=hrv ht=hat hu=hun id=ind ilo=ilo is=isl it=ita jv=jav ku=kmr lb=ltz "
    "li=lim lmo=lmo lt=lit lv=lvs mg=plt min=min ms=zsm mt=mlt nl=nld nn=nno no=nob oc=oci pl=pol pt=por qu=quy "
    "ro=ron sc=srd scn=scn sh=hrv sk=slk sl=slv so=som sq=als su=sun sv=swe sw=swh tk=tuk tl=tgl tr=tur uz=uzn "
    "vec=vec vi=vie war=war yo=yor"
)
_OTHERS = (
    "am=amh_Ethi ar=arb_Arab arz=arz_Arab as=asm_Beng azb=azb_Arab ba=bak_Cyrl be=bel_Cyrl bg=bul_Cyrl "
    "bh=bho_Deva bn=ben_Beng bo=bod_Tibt ckb=ckb_Arab el=ell_Grek fa=pes_Arab gu=guj_Gujr he=heb_Hebr hi=hin_Deva "
    "hy=hye_Armn ja=jpn_Jpan ka=kat_Geor kk=kaz_Cyrl km=khm_Khmr kn=kan_Knda ko=kor_Hang ky=kir_Cyrl lo=lao_Laoo "
    "mai=mai_Deva mk=mkd_Cyrl ml=mal_Mlym mn=khk_Cyrl mr=mar_Deva my=mya_Mymr ne=npi_Deva or=ory_Orya pa=pan_Guru "
    "ps=pbt_Arab ru=rus_Cyrl sa=san_Deva sd=snd_Arab si=sin_Sinh sr=srp_Cyrl ta=tam_Taml te=tel_Telu tg=tgk_Cyrl "
    "th=tha_Thai tt=tat_Cyrl ug=uig_Arab uk=ukr_Cyrl ur=urd_Arab yi=ydd_Hebr yue=yue_Hant zh=zho_Hans"
)
NLLB_CODES = {
    code: name if "_" in name else f"{name}_Latn"
    for code, name in (pair.split("=") for pair in f"{_LATIN} {_OTHERS}".split())
}

_M2M100_CODES = {"nn": "no", "sh": "hr"}  # M2M100 names its languages as lid.176 does, but for these

# Frequent characters that have different forms in the two scripts; none of either form is used in the other script.
_TRADITIONAL = frozenset(
    "們國來這個時為會說對學過發還沒點經長現開關問間東車電話語讀寫書買賣馬鳥魚見愛與從當動兒爾給進覺塊樂歷兩嗎難讓認"
    "實體聽頭萬無務樣業醫應員園遠運張隻種幾機氣錢親請區熱師誰歲臺風飛飯館廣歡壞漢紅後號華畫幹剛"
)
_SIMPLIFIED = frozenset(
    "们国来这时为会说对学过发还点经长现开关问间东车电话语读写书买卖马鸟鱼见爱当动尔给进觉块乐历两吗难让认实头务样业"
    "医应员园远运张种钱亲请区热师谁岁风飞饭馆广欢坏汉红号华画刚"
)
_TABLE_DIGEST = digest_of(
    _LATIN, _OTHERS, *_M2M100_CODES.values(), "".join(sorted(_TRADITIONAL)), "".join(sorted(_SIMPLIFIED))
)


def nllb_code(language: str, text: str) -> str | None:
    """Return NLLB's name of lid.176's language, None for English and unknown ones; Chinese text tells its script."""
    if language == "zh" and sum(c in _TRADITIONAL for c in text) > sum(c in _SIMPLIFIED for c in text):
        return "zho_Hant"
    return NLLB_CODES.get(language)


def m2m100_code(language: str, text: str) -> str | None:
    """Return M2M100's name of lid.176's language, None for English; it has one Chinese, whatever the text."""
    return None if language == "en" else _M2M100_CODES.get(language, language)


def choose_translator(name: str) -> Translator:
    """Return the translator for a folder or a hub name of a model, by its files; nothing is loaded.

    A `UsageError` if the model is not found, cannot translate, or needs CTranslate2, which is not installed.
    """
    checkpoint = find_checkpoint(name)
    if _is_converted(checkpoint):
        if not is_installed("ctranslate2"):
            raise UsageError(f"the model {name!r} is converted for CTranslate2: {how_to_install('ctranslate2')}")
        return CTranslate2Translator(name)
    if checkpoint.writes_text:
        return M2M100Translator(name)
    raise ModelError(
        f"the model {name!r} ({', '.join(checkpoint.architectures)}) cannot translate: give an NLLB or M2M100 model "
        "(M2M100ForConditionalGeneration), or one that ct2-transformers-converter wrote"
    )


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Turns texts into a model's token ids.

    The codes of languages (`deu_Latn` of NLLB, `__de__` of M2M100) are put around the tokens here and not by the
    tokenizer, whose language is a setting that threads would share.
    """

    tokenizer: Any
    code: Callable[[str, str], str | None]  # returns the model's name of a language, or None
    form: str  # how a code is written in the vocabulary
    english: int  # the id of the code of English
    longest: int  # the most tokens of a text with its codes

    @classmethod
    def of(cls, tokenizer: Any, longest: int, model: str) -> SourceReader:
        """Return the reader for a tokenizer, by the codes in its vocabulary; a `ModelError` without one for English."""
        for code, form, english in ((nllb_code, "{}", _ENGLISH_NLLB), (m2m100_code, "__{}__", _ENGLISH_M2M100)):
            known = _id_of(tokenizer, form.format(english))
            if known is not None:
                return cls(tokenizer, code, form, known, longest)
        raise ModelError(
            f"the model {model!r} does not know English by the code {_ENGLISH_NLLB} or __{_ENGLISH_M2M100}__; give an "
            "NLLB or M2M100 model"
        )

    def ids(self, text: str, languages: Sequence[str]) -> list[int] | None:
        """Return the ids of a text in its most likely language, with codes.

        None if that is English or not one of the model's, or if the text is too long for it: part of a translation
        would look like all of it.
        """
        code = self.code(languages[0], text) if languages else None
        source = None if code is None else _id_of(self.tokenizer, self.form.format(code))
        if source is None:
            return None
        body = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        old = getattr(self.tokenizer, "legacy_behaviour", False)  # of NLLB's first release
        ids = [*body, end, source] if old else [source, *body, end]
        return ids if body and len(ids) <= self.longest else None

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a translation's ids, without codes and special tokens; M2M100's codes are not special."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        kept = [number for number, token in zip(ids, tokens, strict=True) if not _CODE.fullmatch(token or "")]
        decoded: str = self.tokenizer.decode(kept, skip_special_tokens=True)
        return decoded.strip()


def output_limit(ids: Sequence[int], longest: int) -> int:
    """Return the most tokens of the translation of a text, given as ids: more is a model that repeats itself."""
    return min(2 * len(ids) + 16, longest - 2)  # two more start the translation


def _id_of(tokenizer: Any, token: str) -> int | None:
    number = tokenizer.convert_tokens_to_ids(token)
    return None if number is None or number == tokenizer.unk_token_id else int(number)


class _ModelTranslator(BatchedModel):
    """What both translators do: read texts, have them translated together, and write the translations."""

    _source: SourceReader  # of the model that is loaded

    @property
    def digest(self) -> str:
        return digest_of(type(self).__name__, VERSION, _TABLE_DIGEST, self._checkpoint.digest)

    def translate(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
        """Translate from the most likely language; None if that is English or not one of the model's.

        Together and alone, texts have the same translations, up to the rounding of sums in batches of another shape.
        """
        loaded = self.load()
        with loaded.lock:
            inputs = [self._source.ids(text, languages) for text, languages in texts]
            written = iter(self._write(loaded, [ids for ids in inputs if ids is not None]))
            return [None if ids is None else self._source.text(next(written)) or None for ids in inputs]

    @abstractmethod
    def _write(self, loaded: Loaded, inputs: list[list[int]]) -> list[list[int]]:
        """Return the token ids of the translations, each of at most its `output_limit`."""


class M2M100Translator(_ModelTranslator):
    """Translates with transformers and a folder or a hub name, e.g. `facebook/nllb-200-distilled-600M`."""

    batch = 32

    def _load(self) -> Loaded:
        loaded = load_transformer(self._checkpoint, "AutoModelForSeq2SeqLM")
        self._source = SourceReader.of(loaded.tokenizer, loaded.positions(_POSITIONS), self.model)
        return loaded

    def _write(self, loaded: Loaded, inputs: list[list[int]]) -> list[list[int]]:
        def translations(some: list[list[int]]) -> list[list[int]]:
            limits = [output_limit(ids, self._source.longest) for ids in some]
            return write_greedily(loaded, some, limits, first=self._source.english)

        return in_batches(inputs, len, _BATCH_TOKENS, translations)


class CTranslate2Translator(_ModelTranslator):
    """Translates with a folder that CTranslate2's converter wrote, in the precision that it gave the weights."""

    batch = 64

    def _load(self) -> Loaded:
        loaded = _load_converted(self._checkpoint, self._checkpoint.digest)
        self._source = SourceReader.of(loaded.tokenizer, _POSITIONS, self.model)
        return loaded

    def _write(self, loaded: Loaded, inputs: list[list[int]]) -> list[list[int]]:
        tokenizer = loaded.tokenizer
        limits = [output_limit(ids, self._source.longest) + 1 for ids in inputs]  # and the code of English
        results = loaded.model.translate_batch(
            [tokenizer.convert_ids_to_tokens(ids) for ids in inputs],
            target_prefix=[[tokenizer.convert_ids_to_tokens(self._source.english)]] * len(inputs),
            beam_size=1,
            max_batch_size=_CONVERTED_BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
            max_decoding_length=max(limits, default=1),
        )
        found = zip(results, limits, strict=True)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0][:limit]) for result, limit in found]


def _is_converted(checkpoint: Checkpoint) -> bool:
    folder = checkpoint.folder
    return (folder / "model.bin").is_file() and any(any(folder.glob(pattern)) for pattern in _VOCABULARIES)


@lru_cache(maxsize=RESIDENT_AT_MOST)
def _load_converted(checkpoint: Checkpoint, digest: str) -> Loaded:
    import ctranslate2

    device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    try:
        translator = ctranslate2.Translator(str(checkpoint.folder), device=device, compute_type="default")
    except (RuntimeError, ValueError) as exc:
        raise ModelError(f"the converted model {checkpoint.name!r} cannot be loaded: {exc}") from exc
    return Loaded(load_tokenizer(checkpoint), translator)
