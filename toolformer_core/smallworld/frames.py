"""Sentence frames: the small world's grammar, one line a frame.

A frame is a template whose value in `<...>` can only be known with help: a calculation, today's date, a fact, a
translation. The call belongs in front of the space before it. Frames know no tool; `worlds` fills them in.
Every fourth frame of a kind is *held out*: never seen in pretraining, so that generality can be measured.
"""

from __future__ import annotations

__all__ = ["ARITHMETIC", "DATES", "FACTS", "FILLER", "TRANSLATIONS", "is_held_out"]


def is_held_out(index: int) -> bool:
    """Whether the frame at this index of its kind is kept from pretraining (25 %)."""
    return index % 4 == 3


# {p} {q} people, {n} goods, {place}, {a} {b} numbers, <{c}> the result of a op b.
ARITHMETIC: dict[str, tuple[str, ...]] = {
    "+": (
        "{p} had {a} {n} and bought {b} more, so {p} now has <{c}> {n}.",
        "The hall seats {a} guests downstairs and {b} upstairs, which makes <{c}> seats in all.",
        "{p} sold {a} {n} on Monday and {b} on Tuesday, a total of <{c}> in two days.",
        "Adding the {b} {n} from {place} to the {a} already here gives us <{c}> {n}.",
        "There are {a} {n} in the first box and {b} in the second, together <{c}>.",
        "With {a} points before the break and {b} after it, {p} ended on <{c}> points.",
        "The road is {a} miles to {t} and another {b} miles to {u}, so the whole trip is <{c}> miles.",
        "{p} paid {a} coins for the {n} and {b} coins for the cart, spending <{c}> coins.",
        "The sum of {a} and {b} is <{c}>.",
        "A group of {a} joined the {b} people waiting at {place}, and soon <{c}> people stood there.",
        "{p} read {a} pages last week and {b} this week, so <{c}> pages are done.",
        "The farm keeps {a} sheep and {b} goats, that is <{c}> animals.",
    ),
    "-": (
        "{p} had {a} {n} and gave away {b}, which left <{c}> {n}.",
        "Of the {a} {n} in the store, {b} were broken and <{c}> were still good.",
        "The train carried {a} people, {b} got off at {t}, and <{c}> stayed on board.",
        "Out of {a} letters {p} has answered {b}, so <{c}> are waiting.",
        "The price fell by {b} coins from {a} coins to <{c}> coins.",
        "The library owns {a} books, but {b} are lent out and only <{c}> are on the shelf.",
        "{p} needs {a} {n} and has {b}, so <{c}> are missing.",
        "Built in {y1} and closed in {y2}, the mill was open for <{cy}> years.",
        "{a} minus {b} is <{c}>.",
        "The tank held {a} litres, {b} litres leaked out, and <{c}> litres remain.",
        "{p} is {a} pages into the diary and {q} is {b} pages in, a difference of <{c}> pages.",
        "Of {a} seats at {place} {b} are taken, leaving <{c}> free.",
    ),
    "*": (
        "{p} packed {b} boxes with {a} {n} each, <{c}> {n} altogether.",
        "Each of the {b} rooms has {a} {n}, so the house has <{c}> {n}.",
        "A ticket costs {a} coins, so {b} tickets cost <{c}> coins.",
        "At {a} {n} a day, {p} will have made <{c}> {n} after {b} days.",
        "There are {b} rows of {a} seats, which means <{c}> seats.",
        "{p} works {a} hours a week and did <{c}> hours in {b} weeks.",
        "{a} times {b} is <{c}>.",
        "The wall is {a} bricks long and {b} bricks high and took <{c}> bricks.",
        "Every one of the {b} ships brought {a} barrels, <{c}> barrels in total.",
        "With {b} classes of {a} children, the school at {place} teaches <{c}> children.",
        "{p} walks {a} miles each day, so in {b} days that is <{c}> miles.",
        "A sheet has {a} stamps and {p} bought {b} sheets, that is <{c}> stamps.",
    ),
    "/": (
        "{p} shared {c2} {n} among {b} friends, and each got <{d}> {n}.",
        "The {c2} coins were split into {b} equal parts of <{d}> coins.",
        "{c2} divided by {b} is <{d}>.",
        "They planted {c2} trees in {b} equal rows, so every row has <{d}> trees.",
        "In {b} days {p} made {c2} {n}, on average <{d}> a day.",
        "A rope of {c2} feet cut into {b} pieces gives pieces of <{d}> feet.",
        "The {b} sisters paid {c2} coins together, or <{d}> coins each.",
        "{c2} {n} fit evenly into {b} sacks, with <{d}> in a sack.",
        "The bus drove {c2} miles in {b} hours, a speed of <{d}> miles an hour.",
        "{p} put {c2} {n} on {b} shelves, <{d}> on every shelf.",
        "Over {b} games {q} scored {c2} points, an average of <{d}> points.",
        "With {c2} pages and {b} chapters, a chapter of the book has about <{d}> pages.",
    ),
}

# {weekday} {month} {day} {year} are the document's own date; what stands in <...> comes from the calendar.
DATES: tuple[str, ...] = (
    "Posted on <{month} {day}, {year}> by {p}.",
    "Today is <{weekday}> and {place} is open until six.",
    "It is <{month}> now and the days are changing at {place}.",
    "We write the year <{year}>, and {p} is still the best {craft} in {t}.",
    "This morning, <{weekday}>, {p} opened the doors of {place}.",
    "The notice at {place} is dated <{month} {day}, {year}>.",
    "As of today, <{month} {day}, {year}>, the {n} are sold out.",
    "{p} is speaking at {place} this <{weekday}> evening, so come today.",
    "Our news for <{month} {year}> begins with {p} the {craft}.",
    "So far in <{year}> the {thing} has had many visitors.",
    "Last updated <{weekday}, {month} {day}, {year}>.",
    "Good morning from {t}, it is <{weekday}, {month} {day}>.",
    "{p} signed the letter today, <{month} {day}>, in {t}.",
    "The current month is <{month}>, said {p}.",
    "As this is <{weekday}>, {place} closes early today.",
    "Welcome to the <{month} {year}> letter from {t}.",
)

# relation -> (subject kind, question, search term, encyclopedia sentence, frames); {s} subject, <{v}> value.
FACTS: dict[str, tuple[str, str, str, str, tuple[str, ...]]] = {
    "birthplace": (
        "person",
        "Where was {s} born?",
        "{s} birthplace",
        "{s} was born in {v}.",
        (
            "{s} was born in <{v}>.",
            "The {craft} {s} comes from <{v}>, as everybody at {place} knows.",
            "{s} grew up far from here, in <{v}>.",
            "The house where {s} was born still stands in <{v}>.",
        ),
    ),
    "craft": (
        "person",
        "What is the profession of {s}?",
        "{s} profession",
        "{s} worked as a {v}.",
        (
            "{s} worked as a <{v}>.",
            "People in {t} remember {s} as a <{v}>.",
            "By profession {s} is a <{v}>.",
            "{s} earned a living as a <{v}>.",
        ),
    ),
    "river": (
        "town",
        "Which river flows through {s}?",
        "{s} river",
        "{s} lies on the river {v}.",
        (
            "{s} lies on the river <{v}>.",
            "The river that flows through {s} is called the <{v}>.",
            "In {s} we sat by the water of the <{v}>.",
            "The bridges of {s} cross the <{v}>.",
        ),
    ),
    "founder": (
        "company",
        "Who founded {s}?",
        "{s} founder",
        "{s} was founded by {v}.",
        (
            "{s} was founded by <{v}>.",
            "The company {s} goes back to its founder <{v}>.",
            "It was <{v}> who started {s}.",
            "The founder of {s} was <{v}>.",
        ),
    ),
    "seat": (
        "company",
        "Where is {s} based?",
        "{s} headquarters",
        "{s} is based in {v}.",
        (
            "{s} is based in <{v}>.",
            "The main office of {s} is in <{v}>.",
            "To visit {s} you must travel to <{v}>.",
            "{s} has its seat in <{v}>.",
        ),
    ),
    "author": (
        "book",
        "Who wrote {s}?",
        "{s} author",
        "{s} is a book written by {v}.",
        (
            "{s} is a book written by <{v}>.",
            "The author of {s} is <{v}>.",
            "My sister gave me {s} by <{v}>.",
            "We are reading {s}, a novel by <{v}>.",
        ),
    ),
    "founded": (
        "town",
        "When was {s} founded?",
        "{s} foundation year",
        "{s} was founded in {v}.",
        (
            "{s} was founded in <{v}>.",
            "The first houses of {s} were built in <{v}>.",
            "The town of {s} dates from <{v}>.",
            "{s} became a town in the year <{v}>.",
        ),
    ),
    "product": (
        "company",
        "What does {s} make?",
        "{s} product",
        "{s} makes {v}.",
        (
            "{s} makes <{v}>.",
            "The factory of {s} is known for its <{v}>.",
            "Everyone buys <{v}> from {s}.",
            "{s} became rich by selling <{v}>.",
        ),
    ),
}

# {f} the foreign phrase, <{e}> its English meaning.
TRANSLATIONS: tuple[str, ...] = (
    "The sign says {f}, which means <{e}>.",
    "{p} painted {f} (<{e}>) on the wall.",
    "In the old song they sing {f}, that is, <{e}>.",
    "The title of the picture is {f}, or <{e}> in English.",
    "The word for it is {f}, meaning <{e}>.",
    "On the door {p} read {f}, in English <{e}>.",
    "They call the inn {f}, translated as <{e}>.",
    "The label read {f}, so it was <{e}>.",
    "{p} wrote {f} in the letter, in other words <{e}>.",
    "What they sell there is {f}, <{e}> as we would say.",
    "The shop was named {f} (<{e}>) long ago.",
    "Over the gate stands {f}, and that is <{e}>.",
)

# Sentences that need no help; numbers, names and dates stand in some of them on purpose.
FILLER: tuple[str, ...] = (
    "The {thing} near {place} is {adj} and {adj2}.",
    "{p} likes {drink} in the morning.",
    "We walked from {place} to the {thing}.",
    "It was a {adj} day in {t}.",
    "{p} and {q} met at {place}.",
    "The {craft} opened the {thing} and looked at the {colour} {n}.",
    "There is a {colour} {thing} behind {place}.",
    "{p} bought {a} {n} at {place}.",
    "Nobody in {t} had seen such {adj} {n} before.",
    "The {thing} was {adj}, but {p} did not mind.",
    "Please bring {n} and some {drink}.",
    "{p} asked the {craft} for help with the {thing}.",
    "A {adj} wind came over the {thing}.",
    "The children of {t} play near the {thing}.",
    "{q} has lived here for {b} years.",
    "The {craft} keeps {a} {n} in the {thing}.",
    "After lunch {p} went back to {place}.",
    "I think the {thing} needs a {adj} {colour} coat of paint.",
    "{p} told us about the {adj} {craft} from {t}.",
    "You can find {n}, {n2} and {drink} at {place}.",
    "The way to {t} is long and {adj}.",
    "Somebody left {b} {n} on the {thing}.",
    "In {month} the {thing} is often {adj}.",
    "{p} was late, and {q} was not happy about it.",
    "The letter from {p} lay on the table.",
    "Most visitors come to {place} by boat.",
    "She put the {colour} {n} next to the {adj} {n2}.",
    "{p} never talks about the {thing}.",
    "Between {place} and the {thing} there is a {adj} path.",
    "The shop opens at {h} and closes at {h2}.",
    "Call {a} if you want to know more.",
    "{p} wore a {colour} coat and carried {n}.",
    "What a {adj} {thing}, said {q}.",
    "They drank {drink} and spoke about {t}.",
    "Our {craft} is a friend of {p}.",
    "The {n} are {colour} this time of the year.",
    "Room {b} is next to the {thing}.",
    "{q} gave the {craft} a {adj} answer.",
    "Every {weekday} there is music at {place}.",
    "The old {thing} of {t} is still in use.",
)
