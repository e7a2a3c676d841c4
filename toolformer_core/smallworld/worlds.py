"""A seeded world and the documents written in it, with the calls that would be right (gold) for measuring.

Worlds of different names draw their entities apart (a short invented name can coincide, in at most two of a hundred),
and only `pretrain` avoids the held-out frames. Gold calls say where a tool would truly help; they are used to measure,
never to train. This module knows the five tools only by the argument each takes; it does not know models, prompts or
scores.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass

from toolformer_core.smallworld import frames
from toolformer_core.smallworld.lexicon import (
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
)

__all__ = ["KINDS", "Sentence", "Slot", "World", "WorldDocument", "long_date"]

KINDS = ("arithmetic", "date", "fact", "translation")


def long_date(day: dt.date) -> str:
    """Return `Monday, January 30, 2023`, whatever the locale."""
    return f"{WEEKDAYS[day.weekday()]}, {MONTHS[day.month - 1]} {day.day}, {day.year}"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place in a sentence where help is needed, and what to ask for it."""

    kind: str  # one of KINDS
    family: str  # frame identity, e.g. "arithmetic/+/3"
    held_out: bool
    position: int  # character offset of the space before the value
    value: str
    answer: str  # what an all-knowing helper would answer; holds the value or leads to it
    arguments: dict[str, str]  # by rule: expression | question | term | name | phrase | empty


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """Sentences joined by spaces, dated, with the slots moved to document offsets."""

    text: str
    date: dt.date
    slots: tuple[Slot, ...]


class World:
    """Everything is drawn from one seeded generator; equal names and seeds give equal worlds.

    Args:
        name: `pretrain`, `corpus` or `evaluation`: three disjoint worlds.
        seed: which of the many worlds of that name.
        phrases: (foreign, English) pairs to translate; None invents a language for every phrase.
        facts: how many subjects this world has; 0 makes every fact up on the spot (pretraining).
    """

    def __init__(
        self, name: str, seed: int = 0, phrases: Sequence[tuple[str, str]] | None = None, facts: int = 0
    ) -> None:
        self.name = name
        self.rng = random.Random(f"{name}/{seed}")
        self.namer = Namer(self.rng)
        self.phrases = phrases
        self.only_known = name == "pretrain"
        self.subjects: list[tuple[str, str, dict[str, str]]] = [
            self._subject(self.rng.choice(("person", "town", "company", "book"))) for _ in range(facts)
        ]

    # -- entities and their facts

    def _subject(self, kind: str) -> tuple[str, str, dict[str, str]]:
        name = {
            "person": self.namer.person,
            "town": self.namer.town,
            "company": self.namer.company,
            "book": self.namer.title,
        }[kind]()
        relations = {rel: self._value(rel) for rel, fact in frames.FACTS.items() if fact[0] == kind}
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
        """Return one encyclopedia entry a subject: {title, section, text}."""
        out = []
        for kind, name, relations in self.subjects:
            told = " ".join(frames.FACTS[rel][3].format(s=name, v=v) for rel, v in relations.items())
            section = {"person": "Life", "town": "Geography", "company": "History", "book": "Overview"}[kind]
            out.append({"title": name, "section": section, "text": told})
        return out

    # -- sentences

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
        allowed = [
            i
            for i in range(len(options))
            if (not self.only_known or not frames.is_held_out(i))
            and (held_out is None or frames.is_held_out(i) == held_out)
        ]
        return self.rng.choice(allowed)

    def filler(self, day: dt.date) -> Sentence:
        """Return a sentence that needs no help; in pretraining one of ten is babble, so that copying is learnt."""
        if self.only_known and self.rng.random() < 0.1:
            return Sentence(self.namer.babble())
        fill = self._filling(day)
        fill["month"] = self.rng.choice(MONTHS)
        fill["weekday"] = self.rng.choice(WEEKDAYS)
        return Sentence(_capital(self.rng.choice(frames.FILLER).format(**fill)))

    def sentence(self, kind: str, day: dt.date, held_out: bool | None = None) -> Sentence:
        """Return a sentence with one slot of the given kind.

        Args:
            held_out: True or False for frames of that group only; None for both.
        """
        make = {
            "arithmetic": self._arithmetic,
            "date": self._date,
            "fact": self._fact,
            "translation": self._translation,
        }[kind]
        return make(day, held_out)

    def _arithmetic(self, day: dt.date, held_out: bool | None) -> Sentence:
        r = self.rng
        op = r.choice("+-*/")
        options = frames.ARITHMETIC[op]
        i = self._pick(options, held_out)
        a, b = r.randint(11, 999), r.randint(3, 99)
        if op in "*/":
            a, b = r.randint(3, 199), r.randint(3, 40)
        elif op == "-" and a < b:
            a, b = b, a + 1
        elif op == "+" and r.random() < 0.5:
            b = r.randint(11, 999)
        y1 = r.randint(1700, 1960)
        y2 = y1 + r.randint(3, 60)
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a}[op]
        c2 = a * b
        fill = self._filling(day) | {
            "a": str(a),
            "b": str(b),
            "c": str(result),
            "c2": str(c2),
            "d": str(a),
            "y1": str(y1),
            "y2": str(y2),
            "cy": str(y2 - y1),
        }
        left, right, value = (c2, b, a) if op == "/" else (a, b, result)
        if "{y1}" in options[i]:
            left, right, value = y2, y1, y2 - y1
        words = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
        arguments = {
            "expression": f"{left} {op} {right}",
            "question": f"What is {left} {words} {right}?",
            "term": f"{left} {words} {right}",
        }
        return self._fill(options[i], fill, "arithmetic", f"arithmetic/{op}/{i}", i, str(value), arguments)

    def _date(self, day: dt.date, held_out: bool | None) -> Sentence:
        i = self._pick(frames.DATES, held_out)
        answer = f"Today is {long_date(day)}."
        arguments = {"empty": "", "term": "date of today", "question": "What day is it?"}
        return self._fill(frames.DATES[i], self._filling(day), "date", f"date/{i}", i, answer, arguments)

    def _fact(self, day: dt.date, held_out: bool | None) -> Sentence:
        r = self.rng
        _, name, relations = (
            r.choice(self.subjects) if self.subjects else self._subject(r.choice(("person", "town", "company", "book")))
        )
        rel = r.choice(sorted(relations))
        question, term, told, options = frames.FACTS[rel][1:]
        i = self._pick(options, held_out)
        v = relations[rel]
        sentence = told.format(s=name, v=v)
        others = " ".join(frames.FACTS[o][3].format(s=name, v=w) for o, w in relations.items())
        answer = v if self.only_known and r.random() < 0.4 else (sentence if r.random() < 0.5 else others)
        arguments = {"question": question.format(s=name), "term": term.format(s=name), "name": name}
        fill = self._filling(day) | {"s": name, "v": v}
        return self._fill(options[i], fill, "fact", f"fact/{rel}/{i}", i, answer, arguments)

    def _translation(self, day: dt.date, held_out: bool | None) -> Sentence:
        r = self.rng
        i = self._pick(frames.TRANSLATIONS, held_out)
        if self.phrases is not None:
            f, e = r.choice(self.phrases)
        else:
            f = self.namer.foreign(r.randint(2, 4))
            e = r.choice(
                (
                    f"the {r.choice(COLOURS)} {r.choice(THINGS)}",
                    f"{r.choice(ADJECTIVES)} {r.choice(GOODS)}",
                    f"a {r.choice(CRAFTS)} and a {r.choice(CRAFTS)}",
                    f"{r.choice(DRINKS)} from the {r.choice(THINGS)}",
                    f"the {r.choice(ADJECTIVES)} {r.choice(CRAFTS)}",
                )
            )
        fill = self._filling(day) | {"f": f, "e": e}
        arguments = {"phrase": f}
        return self._fill(frames.TRANSLATIONS[i], fill, "translation", f"translation/{i}", i, e, arguments)

    def _fill(
        self, frame: str, fill: dict[str, str], kind: str, family: str, i: int, answer: str, arguments: dict[str, str]
    ) -> Sentence:
        before, rest = _capital(frame.format(**fill)).split("<", 1)
        value, after = rest.split(">", 1)
        position = len(before.removesuffix("(").rstrip(" "))  # in front of the space, and of an opening parenthesis
        slot = Slot(kind, family, frames.is_held_out(i), position, value, answer, arguments)
        return Sentence(before + value + after, slot)

    # -- documents

    def date(self) -> dt.date:
        return dt.date(self.rng.randint(1996, 2024), 1, 1) + dt.timedelta(days=self.rng.randint(0, 364))

    def document(
        self, kinds: Sequence[str], sentences: int, day: dt.date | None = None, held_out: bool | None = None
    ) -> WorldDocument:
        """Return a document of `sentences` sentences holding one slot of each of the kinds, in random order."""
        day = day or self.date()
        parts = [self.sentence(k, day, held_out) for k in kinds]
        parts += [self.filler(day) for _ in range(max(0, sentences - len(parts)))]
        self.rng.shuffle(parts)
        return join(parts, day)


def join(parts: Sequence[Sentence], day: dt.date) -> WorldDocument:
    """Join sentences with spaces and move their slots to offsets in the document."""
    text, slots = "", []
    for part in parts:
        start = len(text) + (1 if text else 0)
        text = f"{text} {part.text}" if text else part.text
        if part.slot:
            s = part.slot
            slots.append(Slot(s.kind, s.family, s.held_out, start + s.position, s.value, s.answer, s.arguments))
    return WorldDocument(text, day, tuple(slots))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
