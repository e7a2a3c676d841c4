"""The name of a language in translation models, for each language that fastText's lid.176 recognises.

lid.176 names 176 languages as Wikipedia names its editions; NLLB-200 names 202 pairs of language and script. The table
holds the languages that both know. One name means two languages: `als` is Alemannic for fastText and Tosk Albanian for
NLLB. Where lid.176 names a group of languages and NLLB its members, the member is the one in which most of Wikipedia's
edition is written: Bihari in Bhojpuri, Kurdish in Kurmanji, Serbo-Croatian in Latin letters, as Croatian. This module
knows no models.
"""

from __future__ import annotations

from toolformer_core.records import digest_of

ENGLISH_NLLB = "eng_Latn"
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
    _LATIN, _OTHERS, *_M2M100_CODES.values(), "".join(sorted(_TRADITIONAL)), "".join(sorted(_SIMPLIFIED))
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
