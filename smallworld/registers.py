"""Registers: three styles of wording a document, and the sentences that need no help.

A document keeps to one register: `plain`, `formal` (minutes, notices) or `chatty` (letters, posts). Each register has
its own sentences, and its own words before and after a sentence. This module does not know what a sentence is about.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

REGISTERS = ("plain", "formal", "chatty")

# The sentences with which a document may begin.
OPENINGS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "formal": (
        "Minutes of the meeting at {place}.",
        "Report of the {craft} to the town of {t}.",
        "Public notice no. {b}.",
        "To all members of the club in {t}.",
    ),
    "chatty": (
        "Hi all, greetings from {t}!",
        "Dear {q}, thank you for your letter.",
        "Hello again, {p} here.",
        "So, what is new at {place}?",
    ),
}

_BEFORE: Mapping[str, tuple[str, ...]] = {
    "plain": ("Later, ", "In the end, ", "At first, ", "As planned, ", "Meanwhile, ", "Some say that ", "Once more, "),
    "formal": (
        "According to the register, ",
        "It is recorded that ",
        "The council notes that ",
        "For the files, ",
        "As stated before, ",
        "In this matter, ",
        "We hereby confirm that ",
    ),
    "chatty": (
        "By the way, ",
        "Guess what, ",
        "You know, ",
        "Well, ",
        "I almost forgot, ",
        "Believe it or not, ",
        "Oh, and ",
    ),
}
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "plain": (", as we heard.", ", it was said.", ", and that was all."),
    "formal": (", as the records show.", ", subject to approval.", ", according to the clerk."),
    "chatty": (", I think.", ", would you believe it!", ", how nice!", ", haha."),
}
# Words that are no longer capitalised when they no longer begin the sentence.
_SMALL = frozenset(
    "The A An It In On At Of Our We This That Those There Here With When Where Over Under After Each Every Everyone "
    "One Nobody Somebody Most My Her His She He They Out From For To If Please Between First Last Since So Some As By "
    "Welcome Good Now Put Adding Dividing People Boats Readers Settlers Letters Seen All Built Carved Entries Today "
    "Room What You Nothing Only Posted Two Take Whoever Everybody Below Tonight".split()
)

REGISTER_FILLER: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "formal": (
        "The {craft} of {t} was asked to look after the {thing}.",
        "Members are reminded to bring {n} to {place}.",
        "The question of the {colour} {thing} was put off.",
        "Nothing was decided about the {n}.",
        "The {thing} may not be used before {h} o'clock.",
        "{p} was chosen to speak for the {craft}.",
        "All {n} must be kept in the {thing}.",
        "A copy of this paper lies in room {b}.",
        "Questions go to the {craft} at {place}.",
        "Paragraph {b} remains as it was.",
        "The {adj} {thing} is closed to visitors.",
        "Thanks were given to {p} and {q}.",
    ),
    "chatty": (
        "You should see the {colour} {thing} we have now!",
        "Do you still like {drink}?",
        "I never liked {n} anyway.",
        "{p} says hello, and so does the {craft}.",
        "Can you bring me some {n} next time?",
        "My {thing} is so {adj} these days.",
        "We laughed a lot with {q} at {place}.",
        "Sorry that this took me so long!",
        "What do you think of the {adj} {n}?",
        "It is {adj} here, and I am drinking {drink}.",
        "Ask {p}, who knows all about the {thing}.",
        "Only {b} more days, and then we go to {t}.",
    ),
}

# Sentences for every register; some contain numbers, names and dates on purpose.
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
    "The {craft} already has animals on the farm.",
    "A part of the archive is in the {thing}.",
    "{p} owes the {craft} nothing but a bill for food.",
    "Take the free seat below the high {thing}, said {q}.",
    "Two carts with {n} cross the bridges against the wind.",
    "{q} will move to {t} and hold on to the {colour} {n}.",
    "{p} answered that the title of a chapter in the novel is too long.",
    "Sheets of paper, a bell and a row of {n} fit into the {thing}.",
    "Whoever is selling {n} is leaving {t} early.",
    "The oldest {craft} of {t} can swim.",
    "It was easy, said {p}, who found the {n}.",
    "They are doing well with {n}, and closing late.",
    "One of the chapters was reduced to a full sheet, plus a map.",
    "Entries must be sent in before they close the {thing}.",
    "After the floods the {thing} was {adj}.",
)


def reword(
    text: str, register: str, r: random.Random, *, starts_with_name: bool, often: float = 0.4
) -> tuple[str, int]:
    """Return a sentence in the wording of a register, and by how many characters its beginning has moved.

    Args:
        text: one sentence; words can be added after it only if it ends in a full stop.
        register: one of `REGISTERS`.
        r: the source of randomness.
        starts_with_name: whether it begins with a name, which stays capitalised.
        often: the probability of words before the sentence; words after it are half as likely.
    """
    moved = 0
    if r.random() < often:
        before = r.choice(_BEFORE[register])
        first = text.split(" ", 1)[0].rstrip(",")
        text = before + (text[:1].lower() + text[1:] if first in _SMALL and not starts_with_name else text)
        moved = len(before)
    if r.random() < often / 2 and text.endswith("."):
        text = text[:-1] + r.choice(_BEHIND[register])
    return text, moved
