"""A seeded world and the documents written in it, with the right calls (gold) for measurements.

The worlds `pretrain`, `corpus` and `evaluation` share no entity, no pair of numbers and no date, and each of the last
two has frames that no other world has (`frames.home`). Gold calls are used for measurements, never for training.
"""

import datetime as dt
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from smallworld import frames, registers
from smallworld.lexicon import (
    ADJECTIVES,
    COLOURS,
    CRAFTS,
    DRINKS,
    GOODS,
    MONTHS,
    PLACES,
    THINGS,
    WEEKDAYS,
    Namer,
    fix_articles,
)
from smallworld.wordings import replace_words, splice

# Each world's share: half of all names, pairs of numbers and dates belong to the pretraining world.
WORLDS = ("pretrain", "pretrain", "corpus", "evaluation")

# In pretraining: the share of frames that are babble around their parts; of the others, the share that is spliced, and
# the share in which words are replaced.
_BABBLED, _VARIED = 0.15, 1 / 3

KINDS = ("arithmetic", "date", "fact", "translation")


def world_of(thing: str) -> str:
    """Return the only world in which a slot may ask for this name, pair of numbers or date."""
    return WORLDS[zlib.crc32(thing.encode()) % len(WORLDS)]


def long_date(day: dt.date) -> str:
    """Return a date as `Monday, January 30, 2023`, in any locale."""
    return f"{WEEKDAYS[day.weekday()]}, {MONTHS[day.month - 1]} {day.day}, {day.year}"


# Kind of subject -> the section of its passage.
SECTIONS = {"person": "Life", "town": "Geography", "company": "History", "book": "Overview"}


@dataclass(frozen=True, slots=True)
class SlotCall:
    """A call of a chain, with the response of a tool that knows this world."""

    tool: str  # key
    input: str
    response: str


@dataclass(frozen=True, slots=True)
class Slot:
    """The position in a sentence at which help is needed, and the arguments with which to ask for it."""

    kind: str  # one of KINDS, or a family of `chains`
    family: str  # the frame's identity, such as "arithmetic/+/3"
    held_out: bool
    position: int  # character offset of the space before the value
    value: str
    answer: str  # the answer of a helper that knows everything; it contains the value or leads to it
    arguments: dict[str, str]  # by kind: expression | question | term | name | phrase | empty
    chains: tuple[tuple[SlotCall, ...], ...] = ()  # the chains that lead to the value; the first is the one meant
    taken: str = ""  # of a chain: what its second call takes over from the first response


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """Sentences joined by spaces, with a date; the slots' positions are offsets in the document."""

    text: str
    date: dt.date
    slots: tuple[Slot, ...]


class World:
    """A world; everything is drawn from one seeded generator, so equal arguments give equal worlds.

    `phrases` are (foreign, English) pairs, None: invented ones; 0 `facts` invent each when it is needed (pretraining).
    """

    def __init__(
        self, name: str, seed: int = 0, phrases: Sequence[tuple[str, str]] | None = None, facts: int = 0
    ) -> None:
        self.name = name
        self.rng = random.Random(f"{name}/{seed}")
        self.namer = Namer(self.rng, self._is_own)
        self.phrases = phrases
        self.is_pretraining = name == "pretrain"
        self.subjects = [self._subject() for _ in range(facts)]

    def _is_own(self, thing: str) -> bool:
        return world_of(thing) == self.name

    def _subject(self) -> tuple[str, str, dict[str, str]]:
        n = self.namer
        names = {"person": n.person, "town": n.town, "company": n.company, "book": n.title}
        kind = self.rng.choice(tuple(names))
        name = names[kind]()
        relations = {rel: self._value(rel) for rel, fact in frames.FACTS.items() if fact.kind == kind}
        return kind, name, relations

    def _value(self, relation: str) -> str:
        r, n = self.rng, self.namer
        if relation in ("birthplace", "seat"):
            return n.town()
        if relation in ("founder", "author"):
            return n.person()
        if relation == "river":
            return n.river()
        if relation == "founded":
            return str(r.randint(1100, 1990))
        return r.choice(CRAFTS if relation == "craft" else GOODS)

    def passages(self) -> list[dict[str, str]]:
        out = []
        for kind, name, relations in self.subjects:
            text = " ".join(frames.FACTS[rel].entry.format(s=name, v=v) for rel, v in relations.items())
            out.append({"title": name, "section": SECTIONS[kind], "text": text})
        return out

    def _filling(self, day: dt.date) -> dict[str, str]:
        r, n = self.rng, self.namer
        return {
            "p": n.first_name() if r.random() < 0.6 else n.person(),
            "q": n.first_name(),
            "t": n.town(),
            "u": n.town(),
            "n": r.choice(GOODS),
            "n2": r.choice(GOODS),
            "place": r.choice(PLACES),
            "thing": r.choice(THINGS),
            "craft": r.choice(CRAFTS),
            "adj": r.choice(ADJECTIVES),
            "adj2": r.choice(ADJECTIVES),
            "colour": r.choice(COLOURS),
            "drink": r.choice(DRINKS),
            "a": str(r.randint(2, 999)),
            "b": str(r.randint(2, 60)),
            "h": str(r.randint(6, 11)),
            "h2": str(r.randint(12, 22)),
            "weekday": WEEKDAYS[day.weekday()],
            "month": MONTHS[day.month - 1],
            "day": str(day.day),
            "year": str(day.year),
        }

    def _pick(self, options: Sequence[str], held_out: bool | None) -> int:
        own = [i for i in range(len(options)) if frames.home(i) in ("shared", self.name)]
        return self.rng.choice([i for i in own if held_out is None or frames.is_held_out(i) == held_out])

    def filler(self, day: dt.date, register: str = "plain") -> Sentence:
        """Return a sentence that needs no help; in pretraining one in ten is babble, from which copying is learnt."""
        r = self.rng
        if self.is_pretraining and r.random() < 0.1:
            return Sentence(self.namer.babble())
        specific = registers.REGISTER_FILLER[register]
        frame = r.choice(specific) if specific and r.random() < 0.4 else r.choice(registers.FILLER)
        fill = self._filling(day) | {"month": r.choice(MONTHS), "weekday": r.choice(WEEKDAYS)}
        text = fix_articles(_capital(frame.format(**fill)))
        return Sentence(registers.reword(text, register, r, starts_with_name=frame.startswith("{"), often=0.2)[0])

    def opening(self, register: str, day: dt.date) -> list[Sentence]:
        options = registers.OPENINGS[register]
        if not options or self.rng.random() < 0.4:
            return []
        return [Sentence(_capital(self.rng.choice(options).format(**self._filling(day))))]

    def sentence(self, kind: str, day: dt.date, held_out: bool | None = None, register: str = "plain") -> Sentence:
        """Return a sentence with one slot of a kind; only in held-out frames (True), in others (False), or in any."""
        make = {
            "arithmetic": self._arithmetic,
            "date": self._date,
            "fact": self._fact,
            "translation": self._translation,
        }[kind]
        return self._reword(*make(day, held_out), register)

    def _frame(self, options: Sequence[str], held_out: bool | None, *parts: str) -> tuple[int, str]:
        """Return a frame and its index; in pretraining it may be babble around its parts, spliced, or reworded."""
        r = self.rng
        i = self._pick(options, held_out)
        frame = options[i]
        if self.is_pretraining:
            if "{s}" not in parts and r.random() < _BABBLED:  # a sentence about a subject must express the relation
                return i, self.namer.babble_around(parts)
            if r.random() < _VARIED:
                frame = splice(frame, options[self._pick(options, held_out)], parts)
            if r.random() < _VARIED:
                frame = replace_words(frame, r.choice((0.1, 0.25, 0.5)), r, self.namer.unknown)
        return i, frame

    def _reword(self, sentence: Sentence, starts_with_name: bool, register: str) -> Sentence:
        text, moved = registers.reword(sentence.text, register, self.rng, starts_with_name=starts_with_name)
        slot = sentence.slot
        return Sentence(text, slot and replace(slot, position=slot.position + moved))

    def _numbers(self, op: str, years: bool) -> tuple[int, int]:
        r = self.rng
        if years:
            built = r.randint(1700, 1960)
            return built + r.randint(3, 60), built
        if op in "*/":
            return r.randint(3, 199), r.randint(3, 40)
        a, b = r.randint(11, 999), r.randint(11, 999) if op == "+" and r.random() < 0.5 else r.randint(3, 99)
        return (b, a + 1) if op == "-" and a < b else (a, b)

    def _arithmetic(self, day: dt.date, held_out: bool | None) -> tuple[Sentence, bool]:
        r = self.rng
        op = r.choice("+-*/")
        parts = ("{c2}", "{b}", "<{d}>") if op == "/" else ("{a}", "{b}", "<{c}>")
        i, frame = self._frame(frames.ARITHMETIC[op], held_out, *parts)
        years = "{y1}" in frame
        while not self._is_own(f"{op}{(numbers := self._numbers(op, years))}"):
            pass
        a, b = numbers
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a}[op]
        c2 = a * b
        figures = {"a": a, "b": b, "c": result, "c2": c2, "d": a, "y1": b, "y2": a, "cy": result}
        fill = self._filling(day) | {name: str(figure) for name, figure in figures.items()}
        first = c2 if op == "/" else a
        words = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
        arguments = {
            "expression": f"{first} {op} {b}",
            "question": f"What is {first} {words} {b}?",
            "term": f"{first} {words} {b}",
        }
        return self._fill(frame, fill, "arithmetic", f"arithmetic/{op}/{i}", i, str(result), arguments)

    def _date(self, day: dt.date, held_out: bool | None) -> tuple[Sentence, bool]:
        when = self.rng.choice(("<{month} {day}, {year}>", "<{weekday}, {month} {day}>", "<{weekday}>", "<{year}>"))
        i, frame = self._frame(frames.DATES, held_out, when)
        answer = f"Today is {long_date(day)}."
        arguments = {"empty": "", "term": "date of today", "question": "What day is it?"}
        return self._fill(frame, self._filling(day), "date", f"date/{i}", i, answer, arguments)

    def _fact(self, day: dt.date, held_out: bool | None) -> tuple[Sentence, bool]:
        r = self.rng
        _, name, relations = r.choice(self.subjects) if self.subjects else self._subject()
        rel = r.choice(sorted(relations))
        _, question, term, entry, options = frames.FACTS[rel]
        i, frame = self._frame(options, held_out, "{s}", "<{v}>")
        v = relations[rel]
        sentence = entry.format(s=name, v=v)
        others = " ".join(frames.FACTS[o].entry.format(s=name, v=w) for o, w in relations.items())
        answer = r.choices((v, sentence, others), (1, 1, 2) if self.is_pretraining else (0, 1, 1))[0]
        arguments = {"question": question.format(s=name), "term": term.format(s=name), "name": name}
        fill = self._filling(day) | {"s": name, "v": v}
        return self._fill(frame, fill, "fact", f"fact/{rel}/{i}", i, answer, arguments)

    def _translation(self, day: dt.date, held_out: bool | None) -> tuple[Sentence, bool]:
        i, frame = self._frame(frames.TRANSLATIONS, held_out, "{f}", "<{e}>")
        f, e = self._phrase()
        fill = self._filling(day) | {"f": f, "e": e}
        return self._fill(frame, fill, "translation", f"translation/{i}", i, e, {"phrase": f})

    def _phrase(self) -> tuple[str, str]:
        r = self.rng
        if self.phrases is not None:
            f, e = r.choice(self.phrases)
        else:
            f = self.namer.foreign(r.randint(2, 7))
            e = r.choice(
                (
                    f"the {r.choice(COLOURS)} {r.choice(THINGS)}",
                    f"{r.choice(ADJECTIVES)} {r.choice(GOODS)}",
                    f"a {r.choice(CRAFTS)} and a {r.choice(CRAFTS)}",
                    f"{r.choice(DRINKS)} from the {r.choice(THINGS)}",
                    f"the {r.choice(ADJECTIVES)} {r.choice(CRAFTS)}",
                    f"the {r.choice(THINGS)} and the {r.choice(GOODS)}",
                    f"a {r.choice(THINGS)} {r.choice(('with', 'without', 'or', 'and'))} {r.choice(GOODS)}",
                )
            )
        return f, fix_articles(e)

    def _fill(
        self, frame: str, fill: dict[str, str], kind: str, family: str, i: int, answer: str, arguments: dict[str, str]
    ) -> tuple[Sentence, bool]:
        before, rest = _capital(frame.format(**fill)).split("<", 1)
        value, after = rest.split(">", 1)
        position = len(before.removesuffix("(").rstrip(" "))  # before the space, and before an opening parenthesis
        slot = Slot(kind, family, frames.is_held_out(i), position, value, answer, arguments)
        return Sentence(before + value + after, slot), frame.startswith("{")

    def date(self) -> dt.date:
        while True:
            day = dt.date(self.rng.randint(1996, 2024), 1, 1) + dt.timedelta(days=self.rng.randint(0, 364))
            if self._is_own(day.isoformat()):
                return day

    def document(
        self, kinds: Sequence[str], sentences: int, day: dt.date | None = None, held_out: bool | None = None
    ) -> WorldDocument:
        """Return a document in one register: a slot of each of `kinds` in random order, and `sentences` in all."""
        day = day or self.date()
        register = self.rng.choice(registers.REGISTERS)
        parts = [self.sentence(k, day, held_out, register) for k in kinds]
        parts += [self.filler(day, register) for _ in range(max(0, sentences - len(parts)))]
        self.rng.shuffle(parts)
        return join([*self.opening(register, day), *parts], day)


def join(parts: Sequence[Sentence], day: dt.date) -> WorldDocument:
    text, slots = "", []
    for part in parts:
        start = len(text) + (1 if text else 0)
        text = f"{text} {part.text}" if text else part.text
        if part.slot:
            slots.append(replace(part.slot, position=start + part.slot.position))
    return WorldDocument(text, day, tuple(slots))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
