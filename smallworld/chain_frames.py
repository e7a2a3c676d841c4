"""Frames whose value needs two tools in turn, the second reading what the first has said.

    | family        | tools                  | the second call's input                                 |
    |---------------|------------------------|---------------------------------------------------------|
    | fact-sum      | qa, calculator         | the fact's number, and one from the text: `1820 + 45`   |
    | date-sum      | calendar, calculator   | the year of today, and a number from the text           |
    | search-mt     | wikisearch, mt         | the foreign words in the passage                        |
    | search-search | wikisearch, wikisearch | what the passage names, which has a passage of its own  |

A frame is a template as in `frames`, with the same rule for what is held out: every fourth of a group, in turn for the
corpus and for the evaluation. Both calls belong in front of the space before the value. The words are those of the
ordinary frames, so that a model that was pretrained without chains has read them. `chains` fills the frames in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

# Kind of subject -> relation -> sentence of its passage.
ENTRIES: Mapping[str, Mapping[str, str]] = {
    "town": {
        "founded": "{s} was founded in {v}.",
        "people": "{s} is a town in which {v} people live.",
        "river": "{s} lies on the river {v}.",
        "gate": "Over the gate of {s} stands: {v}.",
    },
    "person": {"birthplace": "{s} was born in {v}.", "craft": "By profession {s} was a {v}."},
    "company": {
        "seat": "{s} is based in {v}.",
        "product": "{s} makes {v}.",
        "label": "The label of {s} reads: {v}.",
    },
    "book": {"author": "{s} is a book written by {v}.", "pages": "{s} has {v} pages."},
}

# {a} and {y} are numbers, {s} a subject; <{c}> is the result, <{e}> the English words, <{v}> the thing found.
CHAINS: Mapping[str, Mapping[str, ChainGroup]] = {
    "fact-sum": {
        "founded": ChainGroup(
            subject="town",
            relation="founded",
            question="When was {s} founded?",
            op="+",
            frames=(
                "{s} got its first bridge {a} years after it was founded, in the year <{c}>.",
                "The first school of {s} opened {a} years after the town was founded, in <{c}>.",
                "When {s} was {a} years old a church was built, so the church is from <{c}>.",
                "{s} was {a} years old when its wall was built, which was in <{c}>.",
                "The library of {s} came {a} years after the town was founded, in the year <{c}>.",
                "The town of {s} was {a} years old when its road was made, in <{c}>.",
                "Settlers founded {s}, and after {a} years, in <{c}>, they built a mill.",
                "The market of {s} started when the town was {a} years old, in the year <{c}>.",
            ),
        ),
        "people": ChainGroup(
            subject="town",
            relation="people",
            question="How many people live in {s}?",
            op="-",
            frames=(
                "Of all the people of {s} {a} were at the market, so <{c}> stayed at home.",
                "{a} of the people of {s} can swim, and the other <{c}> can not.",
                "In {s} {a} people are ill, and <{c}> people are well.",
                "If {a} people left {s}, only <{c}> people would live there.",
                "When {a} people of {s} came to the church, <{c}> were missing.",
                "The {craft} knows {a} of the people in {s}, but not the other <{c}>.",
                "Of the people in {s} {a} live by the water and <{c}> do not.",
                "Of all who live in {s}, {a} are children, so <{c}> are not.",
            ),
        ),
        "pages": ChainGroup(
            subject="book",
            relation="pages",
            question="How many pages does {s} have?",
            op="-",
            frames=(
                "{p} has read {a} pages of {s}, so <{c}> pages are still to come.",
                "In our copy of {s} {a} pages are missing, so it has <{c}> pages.",
                "{p} is {a} pages into {s} and has <{c}> pages to go.",
                "When {p} had read {a} pages of {s}, there were <{c}> pages left.",
                "{s} has maps on {a} pages and no map on the other <{c}>.",
                "{p}, who is reading {s}, has come to page {a}, with <{c}> pages to read.",
                "The sisters shared {s}, and one read {a} pages and the other <{c}>.",
                "After {a} pages of {s} {p} closed the book, and <{c}> pages were not read.",
            ),
        ),
    },
    "date-sum": {
        "since": ChainGroup(
            op="-",
            frames=(
                "The {thing} of {t} was built in {y}, which makes it <{c}> years old this year.",
                "{p}, who was born in {y}, will be <{c}> years old this year.",
                "Since {y} the {craft} has lived in {t}, that is <{c}> years now.",
                "It was in {y} that {p} came to {t}, so now it is <{c}> years.",
                "The {thing} was opened in {y}, <{c}> years before this year.",
                "From {y} until today {p} has worked as a {craft}, <{c}> years in all.",
                "Nobody has seen the {thing} open since {y}, and that is <{c}> years.",
                "The last flood in {t} was in {y}, and <{c}> years have gone by since then.",
            ),
        ),
        "ahead": ChainGroup(
            op="+",
            frames=(
                "The {thing} will be closed for {a} years from today, until <{c}>.",
                "In {a} years from now {t} will have a new {thing}, which is in the year <{c}>.",
                "{p} will work at {place} for {a} more years, so until <{c}>.",
                "Today {p} was lent the {thing} for {a} years, so until the year <{c}>.",
                "In another {a} years we write the year <{c}>, said {p}.",
                "The {n} in the {thing} are good for {a} years, so until <{c}>.",
                "The trees of the {craft} are to be sold {a} years from today, in <{c}>.",
                "When {a} more years have gone by, in the year <{c}>, the {thing} will open.",
            ),
        ),
    },
    "search-mt": {
        "gate": ChainGroup(
            subject="town",
            relation="gate",
            frames=(
                "The words over the gate of {s} are in English <{e}>.",
                "Over the gate of {s} stand the words for <{e}>.",
                "Whoever comes to {s} can read over the gate, in other words, <{e}>.",
                "Carved over the gate of {s} one can read, translated, <{e}>.",
                "What the gate of {s} says is, in our language, <{e}>.",
                "The sign over the gate of {s} is to be read as <{e}>.",
                "The old words on the gate of {s} stand for <{e}>.",
                "Over its gate the town of {s} has carved what in English is <{e}>.",
            ),
        ),
        "label": ChainGroup(
            subject="company",
            relation="label",
            frames=(
                "The label of {s} says, in English, <{e}>.",
                "What the company {s} sells has a label that means <{e}>.",
                "On the label of {s} stands, in our language, <{e}>.",
                "Every box that {s} sends has a label that says, translated, <{e}>.",
                "{p} translated the label of {s} as <{e}>.",
                "The words on the label of {s} are, in other words, <{e}>.",
                "In English the label of {s} would be <{e}>.",
                "The label on the boxes of {s} stands for <{e}>.",
            ),
        ),
    },
    "search-search": {
        "author": ChainGroup(
            subject="book",
            relation="author",
            question="Who wrote {s}?",
            then="birthplace",
            then_question="Where was {s} born?",
            frames=(
                "The author of {s} was born in <{v}>.",
                "{s} was written by somebody who comes from <{v}>.",
                "Whoever wrote {s} lived as a child in <{v}>.",
                "The author of {s} is a native of <{v}>.",
                "The first home of the author of {s} was in <{v}>.",
                "{p} likes {s} and knows that its author is from <{v}>.",
                "The house where the author of {s} was born stands in <{v}>.",
                "The author of {s} first saw the light of day in <{v}>.",
            ),
        ),
        "seat": ChainGroup(
            subject="company",
            relation="seat",
            question="Where is {s} based?",
            then="river",
            then_question="Which river flows through {s}?",
            frames=(
                "The town where {s} is based lies on the river <{v}>.",
                "The town in which {s} has its seat lies by the water of the <{v}>.",
                "Boats reach the main office of {s} by way of the river <{v}>.",
                "The head office of {s} stands on the banks of the <{v}>.",
                "From the offices of {s} you look over the river <{v}>.",
                "The workers of {s} swim in the <{v}>.",
                "The river that flows by the seat of {s} is called the <{v}>.",
                "The people at {s} feared the floods of the <{v}>.",
            ),
        ),
    },
}
