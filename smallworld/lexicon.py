"""The small world's vocabulary, and the generator of its invented names.

The words are ordinary English, chosen for this project; names are made of syllables. This module knows no sentences,
tools or seeds.
"""

import random
import re
import string
from collections.abc import Callable, Sequence

GOODS = (
    "apples pears lemons eggs books pens candles stamps coins tickets chairs tables lamps bottles boxes bricks tiles "
    "seeds trees roses goats sheep hens horses boats nets ropes shirts scarves buttons cups plates spoons maps letters "
    "photos songs stones shells beads toys kites drums bells clocks keys nails planks sacks baskets loaves cakes"
).split()
THINGS = (
    "garden kitchen window bridge market museum library theatre harbour station school church mill tower castle barn "
    "orchard meadow forest valley river lake road street square bench fountain roof door wall cellar attic stove piano"
).split()
PLACES = (
    "the market, the harbour, the old mill, the library, the town hall, the north gate, the bakery, the school yard, "
    "the railway station, the museum, the river bank, the village square, the main street, the castle hill"
).split(", ")
CRAFTS = (
    "baker painter doctor teacher farmer sailor singer writer carpenter gardener lawyer smith potter weaver tailor "
    "printer miller brewer chemist mason poet dancer pilot surgeon banker historian geologist sculptor"
).split()
ADJECTIVES = (
    "old new small large quiet busy bright dark cold warm heavy light narrow wide clean dusty famous simple strange "
    "pretty broken empty gentle fresh rich poor slow quick tall short round plain"
).split()
COLOURS = "red blue green yellow white black brown grey purple orange pink silver golden".split()
DRINKS = "tea coffee milk juice water soup cider cocoa".split()
MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

_ONSETS = "b d f g h j k l m n p r s t v w z br dr fr gr kl kr pl pr sl st tr sh th ch".split()
_VOWELS = "a e i o u a e i o ai ea ou ia".split()
_CODAS = ["", "", "", "", "", "", "", "", "n", "r", "l", "s", "m", "t", "k", "nd", "rk", "st"]
_REAL_TOOL = re.compile("Calculator|Calendar|WikiSearch|^(QA|MT)$")
_PIECED = 0.4  # the share of the tools' names that are made of pieces, if there are any
_LINKS = "of in on at by for from with and or but not is was has had can will a the this that who where when as".split()
_FOREIGN_VOWELS = "a e i o u ä ö ü é è à ô ñi õ".split()
# Letters about as often as in European texts. Words of such letters cannot be built from syllables, only copied.
_LETTERS = "eeeeeettttaaaaaooooiiiinnnnssssrrrrhhlllddduuccmmfpgwybvkjqxzäöüßéèêëáàâíìîïóòôúùûçñ"


def fix_articles(text: str) -> str:
    return re.sub(r"\b([Aa])(?= [aeiou])", r"\1n", text)


class Namer:
    """Invents names from random syllables, which can be reproduced only by copying; `may_use` says which it may use.

    `pieces` are tokens that hardly occur in texts, such as "lendar" in " calendar"; if there are any, some tools' names
    are made of them, as a model does not copy a token that it has never copied in training.
    """

    def __init__(self, rng: random.Random, may_use: Callable[[str], bool] = lambda name: True) -> None:
        self.rng = rng
        self.may_use = may_use
        self.pieces: Sequence[str] = ()

    def _entity(self, draw: Callable[[], str]) -> str:
        while not self.may_use(name := draw()):
            pass
        return name

    def _word(self, low: int, high: int, vowels: list[str] | None = None) -> str:
        r = self.rng
        vowels = vowels or _VOWELS
        return "".join(r.choice(_ONSETS) + r.choice(vowels) + r.choice(_CODAS) for _ in range(r.randint(low, high)))

    def _letters(self) -> str:
        r = self.rng
        word = "".join(r.choice(_LETTERS) for _ in range(r.randint(1, 8)))
        return f"l'{word}" if r.random() < 0.05 else word.capitalize() if r.random() < 0.2 else word

    def unknown(self) -> str:
        return self._unknown(1, 3)

    def _unknown(self, low: int, high: int, vowels: list[str] | None = None) -> str:
        return self._word(low, high, vowels) if self.rng.random() < 0.5 else self._letters()

    def first_name(self) -> str:
        return self._word(1, 2).capitalize() + self.rng.choice(("a", "o", "i", "en", "el", ""))

    def person(self) -> str:
        return self._entity(lambda: f"{self.first_name()} {self._word(2, 2).capitalize()}")

    def town(self) -> str:
        endings = ("ton", "burg", "vik", "ham", "mere", "ford", "", "stad", "via")
        return self._entity(lambda: self._word(1, 2).capitalize() + self.rng.choice(endings))

    def river(self) -> str:
        return self._entity(lambda: self._word(1, 2).capitalize() + self.rng.choice(("a", "e", "o", "")))

    def company(self) -> str:
        businesses = ("Works", "Brothers", "Mills", "Foods", "Motors", "Lines")
        return self._entity(lambda: f"{self._word(1, 2).capitalize()} {self.rng.choice(businesses)}")

    def title(self) -> str:
        adjective = self.rng.choice(ADJECTIVES).capitalize()
        return self._entity(lambda: f"The {adjective} {self._word(1, 2).capitalize()}")

    def tool(self) -> str:
        r = self.rng
        if self.pieces and r.random() < _PIECED:
            begin = self._word(1, 1).capitalize() if r.random() < 0.5 else r.choice(string.ascii_uppercase)
            name = begin + "".join(r.choice(self.pieces) for _ in range(r.choice((1, 2, 2, 3))))
            if not _REAL_TOOL.search(name):
                return name
        a, b = self._word(1, 3), self._word(1, 2)
        words = r.choice((THINGS, GOODS, CRAFTS, ADJECTIVES)), r.choice((THINGS, GOODS, CRAFTS))
        compound = "".join(r.choice(w).capitalize() for w in words)
        letters = "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.choice((2, 2, 2, 3, 4))))
        if _REAL_TOOL.search(letters):  # an invented name must not be a real tool's, which finetuning is to teach
            letters += "X"
        camel = a.capitalize() + b.capitalize()
        spelt = (a.capitalize(), a.capitalize(), camel, camel, letters, letters, a, f"{a}_{b}", compound, compound)
        return r.choice(spelt)

    def _babble_words(self, low: int, high: int) -> list[str]:
        r = self.rng
        pool = (GOODS, THINGS, CRAFTS, ADJECTIVES, COLOURS, DRINKS, _LINKS, _LINKS)
        count = r.randint(low, high)
        return [r.choice(r.choice(pool)) if r.random() < 0.65 else self.unknown() for _ in range(count)]

    def babble(self) -> str:
        """Return a sentence of unconnected words, known and unknown, which can be copied but not guessed."""
        r = self.rng
        words = self._babble_words(4, 14)
        if r.random() < 0.4:
            number = r.choice((str(r.randint(0, 99999)), f"{r.randint(1, 99)}.{r.randint(0, 9)}"))
            words[r.randrange(len(words))] = number
        if r.random() < 0.5:
            words[r.randrange(len(words) - 1)] += r.choice((",", ",", ":", ";", " -", "'s", ")", '"'))
        return " ".join(words).capitalize() + r.choice(".....!?")

    def babble_around(self, parts: Sequence[str]) -> str:
        """Return a frame of unconnected words around the parts, which keep their order."""
        words = self._babble_words(1, 4)
        for n, part in enumerate(parts):
            words += [*(self._babble_words(1, 5) if n else []), part]
            if self.rng.random() < 0.2 and n + 1 < len(parts):
                words[-1] += self.rng.choice((",", ";", ":"))
        words += self._babble_words(0, 4)
        return " ".join(words) + "."

    def foreign(self, words: int) -> str:
        return " ".join(self._unknown(1, 2, _FOREIGN_VOWELS) for _ in range(words))
