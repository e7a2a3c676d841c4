"""Which language a translation model is told, for each language that fastText's lid.176 recognises.

lid.176 names 176 languages as Wikipedia names its editions; NLLB-200 names 202 pairs of language and script. The table
holds the languages that both know. One name means two languages: `als` is Alemannic for fastText and Tosk Albanian for
NLLB. Where lid.176 names a group of languages and NLLB its members, the member is the one in which most of Wikipedia's
edition is written. This module knows no models.
"""

from __future__ import annotations

from toolformer_core.records import digest_of

ENGLISH_NLLB = "eng_Latn"
NLLB_CODES = {
    "af": "afr_Latn",
    "am": "amh_Ethi",
    "ar": "arb_Arab",
    "arz": "arz_Arab",
    "as": "asm_Beng",
    "ast": "ast_Latn",
    "az": "azj_Latn",
    "azb": "azb_Arab",
    "ba": "bak_Cyrl",
    "be": "bel_Cyrl",
    "bg": "bul_Cyrl",
    "bh": "bho_Deva",  # Bihari: the edition is in Bhojpuri
    "bn": "ben_Beng",
    "bo": "bod_Tibt",
    "bs": "bos_Latn",
    "ca": "cat_Latn",
    "ceb": "ceb_Latn",
    "ckb": "ckb_Arab",
    "cs": "ces_Latn",
    "cy": "cym_Latn",
    "da": "dan_Latn",
    "de": "deu_Latn",
    "el": "ell_Grek",
    "eo": "epo_Latn",
    "es": "spa_Latn",
    "et": "est_Latn",
    "eu": "eus_Latn",
    "fa": "pes_Arab",
    "fi": "fin_Latn",
    "fr": "fra_Latn",
    "ga": "gle_Latn",
    "gd": "gla_Latn",
    "gl": "glg_Latn",
    "gn": "grn_Latn",
    "gu": "guj_Gujr",
    "he": "heb_Hebr",
    "hi": "hin_Deva",
    "hr": "hrv_Latn",
    "ht": "hat_Latn",
    "hu": "hun_Latn",
    "hy": "hye_Armn",
    "id": "ind_Latn",
    "ilo": "ilo_Latn",
    "is": "isl_Latn",
    "it": "ita_Latn",
    "ja": "jpn_Jpan",
    "jv": "jav_Latn",
    "ka": "kat_Geor",
    "kk": "kaz_Cyrl",
    "km": "khm_Khmr",
    "kn": "kan_Knda",
    "ko": "kor_Hang",
    "ku": "kmr_Latn",  # Kurdish: the edition is in Kurmanji; Sorani is `ckb`
    "ky": "kir_Cyrl",
    "lb": "ltz_Latn",
    "li": "lim_Latn",
    "lmo": "lmo_Latn",
    "lo": "lao_Laoo",
    "lt": "lit_Latn",
    "lv": "lvs_Latn",
    "mai": "mai_Deva",
    "mg": "plt_Latn",
    "min": "min_Latn",
    "mk": "mkd_Cyrl",
    "ml": "mal_Mlym",
    "mn": "khk_Cyrl",
    "mr": "mar_Deva",
    "ms": "zsm_Latn",
    "mt": "mlt_Latn",
    "my": "mya_Mymr",
    "ne": "npi_Deva",
    "nl": "nld_Latn",
    "nn": "nno_Latn",
    "no": "nob_Latn",
    "oc": "oci_Latn",
    "or": "ory_Orya",
    "pa": "pan_Guru",
    "pl": "pol_Latn",
    "ps": "pbt_Arab",
    "pt": "por_Latn",
    "qu": "quy_Latn",
    "ro": "ron_Latn",
    "ru": "rus_Cyrl",
    "sa": "san_Deva",
    "sc": "srd_Latn",
    "scn": "scn_Latn",
    "sd": "snd_Arab",
    "sh": "hrv_Latn",  # Serbo-Croatian: the edition is in Latin script, as Croatian
    "si": "sin_Sinh",
    "sk": "slk_Latn",
    "sl": "slv_Latn",
    "so": "som_Latn",
    "sq": "als_Latn",
    "sr": "srp_Cyrl",
    "su": "sun_Latn",
    "sv": "swe_Latn",
    "sw": "swh_Latn",
    "ta": "tam_Taml",
    "te": "tel_Telu",
    "tg": "tgk_Cyrl",
    "th": "tha_Thai",
    "tk": "tuk_Latn",
    "tl": "tgl_Latn",
    "tr": "tur_Latn",
    "tt": "tat_Cyrl",
    "ug": "uig_Arab",
    "uk": "ukr_Cyrl",
    "ur": "urd_Arab",
    "uz": "uzn_Latn",
    "vec": "vec_Latn",
    "vi": "vie_Latn",
    "war": "war_Latn",
    "yi": "ydd_Hebr",
    "yo": "yor_Latn",
    "yue": "yue_Hant",
    "zh": "zho_Hans",  # or zho_Hant, see `nllb_code`
}

ENGLISH_M2M100 = "en"
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
TABLE_DIGEST = digest_of(
    *(part for pair in NLLB_CODES.items() for part in pair),
    *(part for pair in _M2M100_CODES.items() for part in pair),
    "".join(sorted(_TRADITIONAL)),
    "".join(sorted(_SIMPLIFIED)),
)


def nllb_code(language: str, text: str) -> str | None:
    """Return NLLB's name of a language, or None if NLLB does not know it, or if it is English.

    Args:
        language: lid.176's name.
        text: written in it; of Chinese, it tells which script.
    """
    if language == "zh" and sum(c in _TRADITIONAL for c in text) > sum(c in _SIMPLIFIED for c in text):
        return "zho_Hant"
    return NLLB_CODES.get(language)


def m2m100_code(language: str, text: str) -> str | None:
    """Return M2M100's name of a language, or None for English. Whether a model knows it, its vocabulary tells.

    Args:
        language: lid.176's name.
        text: written in it; M2M100 has one Chinese, so nothing is read from it.
    """
    return None if language == "en" else _M2M100_CODES.get(language, language)
