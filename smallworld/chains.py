"""A world with chains: sentences whose value needs two calls at one position, the second reading the first's response.

    Velden got its first bridge 45 years after it was founded, in the year
        [QA(When was Velden founded?) -> 1820] [Calculator(1820 + 45) -> 1865] 1865

It has the ordinary facts of `worlds` for the same seed, and subjects for chains besides. In all its documents a chain
is *needed* (`is_needed`), so one call alone does not help. Frames (`chains.toml`) are held out as those of `frames`.
Both calls belong in front of the space before the value. No tool is called here: responses are what the tools respond
that read this world's passages, and a test asks them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from smallworld.frames import read_tables
from smallworld.lexicon import CRAFTS, GOODS
from smallworld.worlds import SECTIONS, Sentence, Slot, SlotCall, World, WorldDocument, long_date


@dataclass(frozen=True, slots=True)
class ChainGroup:
    """Frames of a family that ask for the same thing."""

    frames: tuple[str, ...]
    subject: str = ""  # kind of subject, {s}; "" if there is none
    relation: str = ""  # of the subject: what the first tool tells
    question: str = ""  # that QA answers with it
    op: str = ""  # of the sum: first response's number, op, the text's number
    then: str = ""  # of the thing that the relation names: what the second search tells
    then_question: str = ""  # that QA answers with that


# Family -> keys of the tools that are meant, in the order of the calls.
TOOLS: Mapping[str, tuple[str, str]] = {
    "fact-sum": ("qa", "calculator"),
    "date-sum": ("calendar", "calculator"),
    "search-mt": ("wikisearch", "mt"),
    "search-search": ("wikisearch", "wikisearch"),
}
_TABLES = read_tables("chains.toml")
_ENTRIES: Mapping[str, Mapping[str, str]] = _TABLES["entries"]
CHAINS: Mapping[str, Mapping[str, ChainGroup]] = {
    family: {name: ChainGroup(**group) for name, group in groups.items()}
    for family, groups in _TABLES["chains"].items()
}


@dataclass(frozen=True, slots=True)
class _Subject:
    """A thing that chains ask about, with its facts."""

    kind: str
    name: str
    facts: Mapping[str, str]  # relation -> value
    english: str = ""  # what the foreign words among the facts mean
    other: _Subject | None = None  # the subject that one of the facts names

    @property
    def passage(self) -> dict[str, str]:
        entries = (entry.format(s=self.name, v=self.facts[rel]) for rel, entry in _ENTRIES[self.kind].items())
        return {"title": self.name, "section": SECTIONS[self.kind], "text": " ".join(entries)}

    @property
    def search(self) -> SlotCall:
        return SlotCall("wikisearch", self.name, " > ".join(self.passage.values()))


@dataclass(frozen=True, slots=True)
class _Need:
    """What fills the value of a chain's frame, and how it is found out."""

    fill: Mapping[str, str]
    chains: tuple[tuple[SlotCall, ...], ...]  # see `Slot`
    taken: str  # from the first response, into the second input


class ChainWorld(World):
    """A world whose sentences may be chains, which ask about `chain_facts` subjects of each kind; else as `World`."""

    def __init__(self, name: str, seed: int, phrases: Sequence[tuple[str, str]], facts: int, chain_facts: int) -> None:
        super().__init__(name, seed, phrases, facts)
        self._titles = {title for _, title, _ in self.subjects}
        self._known: dict[str, list[_Subject]] = {}
        for kind in _ENTRIES:  # towns and people come before the companies and books that name them
            self._known[kind] = [self._chain_subject(kind) for _ in range(chain_facts)]

    def chain_passages(self) -> list[dict[str, str]]:
        return [subject.passage for subjects in self._known.values() for subject in subjects]

    def sentence(self, kind: str, day: dt.date, held_out: bool | None = None, register: str = "plain") -> Sentence:
        """Return a sentence with one slot; the kind may also be a family of chains. See `World.sentence`."""
        if kind not in CHAINS:
            return super().sentence(kind, day, held_out, register)
        while True:
            sentence = self._reword(*self._chain(kind, day, held_out), register)
            if sentence.slot is not None and is_needed(sentence.text, sentence.slot):
                return sentence

    def document(
        self, kinds: Sequence[str], sentences: int, day: dt.date | None = None, held_out: bool | None = None
    ) -> WorldDocument:
        """Return a document in which every chain is needed; see `World.document`."""
        while True:
            document = super().document(kinds, sentences, day, held_out)
            if all(is_needed(document.text, slot) for slot in document.slots):
                return document

    def _chain_subject(self, kind: str) -> _Subject:
        r, n = self.rng, self.namer
        if kind == "town":
            gate, english = self._phrase()
            # a number of people that cannot be taken for a year
            facts = {"founded": str(r.randint(1100, 1880)), "people": str(r.randint(2_100, 9_900)), "river": n.river()}
            return _Subject(kind, self._title(n.town), {**facts, "gate": gate}, english)
        if kind == "person":
            return _Subject(kind, self._title(n.person), {"birthplace": n.town(), "craft": r.choice(CRAFTS)})
        if kind == "company":
            town, (label, english) = self._any("town"), self._phrase()
            facts = {"seat": town.name, "product": r.choice(GOODS), "label": label}
            return _Subject(kind, self._title(n.company), facts, english, town)
        author = self._any("person")
        return _Subject(
            kind, self._title(n.title), {"author": author.name, "pages": str(r.randint(120, 980))}, other=author
        )

    def _title(self, draw: Callable[[], str]) -> str:
        while (name := draw()) in self._titles:
            pass
        self._titles.add(name)
        return name

    def _any(self, kind: str) -> _Subject:
        return self.rng.choice(self._known[kind])

    def _chain(self, family: str, day: dt.date, held_out: bool | None) -> tuple[Sentence, bool]:
        name = self.rng.choice(list(CHAINS[family]))
        group = CHAINS[family][name]
        need = _DRAWS[family](self, group, day)
        parts = [part for part in ("{s}", "{a}", "{y}") if part[1] in need.fill]
        value = next(part for part in ("<{c}>", "<{e}>", "<{v}>") if part[2] in need.fill)
        i, frame = self._frame(group.frames, held_out, *parts, value)
        fill = {**self._filling(day), **need.fill}
        sentence, starts_with_name = self._fill(
            frame, fill, family, f"{family}/{name}/{i}", i, need.chains[0][-1].response, {}
        )
        slot = sentence.slot and replace(sentence.slot, chains=need.chains, taken=need.taken)
        return Sentence(sentence.text, slot), starts_with_name

    def _own_sum(self, op: str, first: int, low: int, high: int) -> tuple[str, SlotCall]:
        """Return a number of this world that is added to the first or subtracted from it, and the Calculator's call."""
        while not self._is_own(f"{op}{(first, second := self.rng.randint(low, high))}"):
            pass
        result = first + second if op == "+" else first - second
        return str(second), SlotCall("calculator", f"{first} {op} {second}", str(result))

    def _fact_sum(self, group: ChainGroup, day: dt.date) -> _Need:
        subject = self._any(group.subject)
        number = subject.facts[group.relation]
        low, high = (3, 99) if group.op == "+" else (11, min(999, int(number) - 11))
        second, result = self._own_sum(group.op, int(number), low, high)
        question = SlotCall("qa", group.question.format(s=subject.name), number)
        fill = {"s": subject.name, "a": second, "c": result.response}
        return _Need(fill, ((question, result), (subject.search, result)), number)

    def _date_sum(self, group: ChainGroup, day: dt.date) -> _Need:
        low, high = (2, 60) if group.op == "+" else (day.year - 120, day.year - 3)
        second, result = self._own_sum(group.op, day.year, low, high)
        today = SlotCall("calendar", "", f"Today is {long_date(day)}.")
        fill = {"a" if group.op == "+" else "y": second, "c": result.response}
        return _Need(fill, ((today, result),), str(day.year))

    def _search_mt(self, group: ChainGroup, day: dt.date) -> _Need:
        subject = self._any(group.subject)
        words = subject.facts[group.relation]
        translated = SlotCall("mt", words, subject.english)
        fill = {"s": subject.name, "e": subject.english}
        return _Need(fill, ((subject.search, translated),), words)

    def _search_search(self, group: ChainGroup, day: dt.date) -> _Need:
        subject = self._any(group.subject)
        if (other := subject.other) is None:
            raise ValueError(f"the passage of a {subject.kind} names nothing that has a passage")
        value = other.facts[group.then]
        first = (subject.search, SlotCall("qa", group.question.format(s=subject.name), other.name))
        second = (other.search, SlotCall("qa", group.then_question.format(s=other.name), value))
        fill = {"s": subject.name, "v": value}
        return _Need(fill, tuple(product(first, second)), other.name)


_DRAWS: Mapping[str, Callable[[ChainWorld, ChainGroup, dt.date], _Need]] = {
    "fact-sum": ChainWorld._fact_sum,
    "date-sum": ChainWorld._date_sum,
    "search-mt": ChainWorld._search_mt,
    "search-search": ChainWorld._search_search,
}


def is_needed(text: str, slot: Slot) -> bool:
    """Return whether all calls of a slot are needed; a slot without chains is.

    They are not if the text in front of the value holds it, or what the second call takes over from the first response,
    or if an earlier response holds the value: as whole words, in any case.
    """
    if not slot.chains:
        return True
    before = text[: slot.position]
    known = _holds(before, slot.value) or _holds(before, slot.taken)
    return not known and not any(_holds(call.response, slot.value) for calls in slot.chains for call in calls[:-1])


def _holds(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None
