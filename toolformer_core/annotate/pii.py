"""E-mail addresses and telephone numbers in texts: which texts hold them, and texts in which they are masked.

An e-mail address is known by its `@` and a domain with a dot. A telephone number is known by how it is written:

    +44 20 7946 0958    `+` and 8 to 15 digits, in any groups
    (555) 010-4477      ten digits in groups of 3, 3 and 4, perhaps after a 1
    020 7946 0958       an area code that begins with 0, then one group of 5 to 8 digits or two of 3 or 4

Digits in one piece (`5550104477`) may be anything; neither they nor people's names or streets are masked. Each
character of what is masked becomes a `*`, so that every other one stays where it is.
"""

import re

NAME = "pii-1"  # of these rules, for fingerprints
_IN_ADDRESS = r"\w.%+@-"
_E_MAIL = rf"(?<![{_IN_ADDRESS}])@*[\w.%+-]+@[{_IN_ADDRESS}]*\.[^\W\d_]{{2}}(?:[{_IN_ADDRESS}]*\w)?"
_TELEPHONE = (
    r"(?<![\w.-])(?:"
    r"\+\d(?:[ \u00a0.()/-]{0,2}\d){7,14}"
    r"|(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}"
    r"|(?:\(0[1-9]\d{1,3}\)|0[1-9]\d{1,3})[ /-]{1,3}(?:\d{5,8}|\d{3,4}[ -]\d{3,4})"
    r")+(?!\w)"
)
_PATTERNS = {"e-mail address": re.compile(_E_MAIL), "telephone number": re.compile(_TELEPHONE)}
KINDS = tuple(_PATTERNS)


def kinds_in(text: str) -> list[str]:
    return [kind for kind, pattern in _PATTERNS.items() if pattern.search(text)]


def masked(text: str) -> str:
    for pattern in _PATTERNS.values():
        text = pattern.sub(lambda found: "*" * len(found[0]), text)
    return text
