"""The texts that the embedded model is pretrained on: plain text, notes before a text, and invented tools in context.

    plain   20 %  documents of the pretraining world
    notes   35 %  a note states something before a text that uses it, in ten notations; some mislead or are empty
    tools   45 %  an instruction, demonstrations and one more input, for *invented* tools with random names; a third
                  of these texts is about several tools at once

Neither the five real tools nor any of their `call -> result` pairs occur here: finetuning is to teach them.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from smallworld.registers import REGISTERS
from smallworld.worlds import KINDS, Slot, World, WorldDocument, join

# The kinds of argument with which a tool is called, by kind of slot (where a text needs help; see `worlds.Slot`).
_ARGUMENT_KINDS: dict[str, tuple[str, ...]] = {
    "arithmetic": ("expression", "expression", "question", "term"),
    "date": ("empty", "empty", "empty", "question", "term"),
    "fact": ("question", "question", "term", "name", "name"),
    "translation": ("phrase", "phrase", "phrase"),
}

# How often a lesson is about a kind of slot.
_TOOL_KINDS = (*["arithmetic"] * 2, "date", *["fact"] * 2, *["translation"] * 2)
_NOTE_KINDS = (*["arithmetic"] * 3, *["date"] * 2, *["fact"] * 2, *["translation"] * 2)

_INSTRUCTIONS = (
    "Your task is to add calls to {tool} to a text. The calls should help to complete it. Write {call}. Some examples:",
    "Add {tool} calls to the text where they help. A call looks like {call}.",
    "{tool} can be called by writing {call}. Complete the texts with its help.",
    "Put {call} in front of the words that {tool} can find out.",
    "Below, texts are copied and calls of the form {call} are added.",
    "Copy each text and insert {call} where information from {tool} is useful. Examples:",
    "You can use the tool {tool} to look things up. Write {call} before what you need it for.",
    "The task: rewrite the text with {tool} calls. Use {call}. Some examples follow.",
    "Mark every place where {tool} would help with {call}, and change nothing else.",
)
_ARGUMENT_WORDS = {
    "expression": ("expression", "formula", "what to compute"),
    "question": ("question", "your question"),
    "term": ("term", "search term", "key words"),
    "name": ("name", "word", "thing"),
    "phrase": ("text", "phrase", "words"),
    "empty": ("",),
}
_LABELS = [("Input:", "Output:")] * 6
_LABELS += [("Text:", "Result:"), ("Before:", "After:"), ("In:", "Out:"), ("Plain:", "With calls:")]


def _annotate(doc: WorldDocument, calls: Mapping[str, Callable[[Slot], str]]) -> str:
    text = doc.text
    for slot in sorted(doc.slots, key=lambda s: -s.position):
        if slot.kind in calls:
            text = f"{text[: slot.position]} {calls[slot.kind](slot)}{text[slot.position :]}"
    return text


def _invented_tool(world: World, r: random.Random, kind: str, brackets: str) -> tuple[str, Callable[[Slot], str]]:
    """Return an instruction for an invented tool for a kind of slot, and a function that writes its call."""
    argument_kind = r.choice(_ARGUMENT_KINDS[kind])
    tool = world.namer.tool()
    quote = '"' if argument_kind not in ("empty", "expression") and r.random() < 0.2 else ""

    def write(argument: str) -> str:
        return f"{brackets[0]}{tool}({quote}{argument}{quote}){brackets[1]}"

    instruction = r.choice(_INSTRUCTIONS).format(tool=tool, call=write(r.choice(_ARGUMENT_WORDS[argument_kind])))
    return instruction, lambda slot: write(slot.arguments[argument_kind])


def _tool_lesson(world: World, r: random.Random) -> str:
    """Return a text about one tool or several; with several, the words before a call tell which of them it needs."""
    kinds = [r.choice(_TOOL_KINDS)]
    if r.random() < 0.35:
        kinds = r.sample(KINDS, r.choice((2, 3, len(KINDS))))
    brackets = "[]" if r.random() < 0.92 else r.choice(("{}", "<>", "()"))
    tools = {kind: _invented_tool(world, r, kind, brackets) for kind in kinds}
    calls = {kind: call for kind, (_, call) in tools.items()}
    before, after = r.choice(_LABELS)
    gap = r.choice(("\n\n", "\n\n", "\n"))
    out = [instruction for instruction, _ in tools.values()]
    shots = r.choice((3, 4, 4, 4, 5)) if len(kinds) == 1 else len(kinds) + r.choice((1, 2))
    for shot in range(shots + 1):
        last = shot == shots
        kind = r.choice(kinds) if last else kinds[shot % len(kinds)]
        if last:
            n = r.choice((1, 2, 3, 4, 5, 6, 7, 8))
            others = [k for k in KINDS if k != kind]
            wanted = [kind, kind] if n > 4 and r.random() < 0.3 else [kind] if r.random() < 0.9 else []
            wanted += r.sample(others, r.choice((0, 0, 1, 1, 2)))
        else:
            n = r.choice((1, 1, 1, 2))
            wanted = [kind] if r.random() < 0.92 else []
        doc = world.document(wanted, n)
        out.append(f"{before} {doc.text}\n{after} {_annotate(doc, calls)}")
    return gap.join(out)


def _notations(tool: str, argument: str, answer: str) -> list[str]:
    return [
        f" [{tool}({argument}) -> {answer}]",
        f" [{tool}({argument}) -> {answer}]",
        f"[{tool}({argument}) = {answer}]",
        f"({tool} {argument}: {answer})",
        f"Note: {argument} {answer}\n",
        f"{tool} says: {answer}\n",
        f"<{tool} {argument}>{answer}</{tool}>",
        f"{argument} => {answer}\n",
        f"Q: {argument}\nA: {answer}\n\n",
        f"# {answer}\n",
        f"Known: {argument} is {answer}. ",
    ]


def _note_lesson(world: World, r: random.Random) -> str:
    kind = r.choice(_NOTE_KINDS)
    day, register = world.date(), r.choice(REGISTERS)
    main = world.sentence(kind, day, register=register)
    if (slot := main.slot) is None:
        raise ValueError(f"a sentence of kind {kind!r} has no slot")
    tool = world.namer.tool()

    def note(s: Slot, answer: str) -> str:
        argument_kind = r.choice([known for known in _ARGUMENT_KINDS[s.kind] if known in s.arguments])
        return r.choice(_notations(tool, s.arguments[argument_kind], answer))

    other = world.sentence(kind, world.date()).slot or slot
    chance = r.random()
    if chance < 0.10:  # misleading: about something else of this kind
        prefix = note(other, other.answer)
    elif chance < 0.22:  # empty: a question without an answer
        prefix = note(slot, "")
    elif chance < 0.36:  # two notes, one of which is useful
        both = [note(slot, slot.answer), note(other, other.answer)]
        r.shuffle(both)
        prefix = "".join(both)
    elif chance < 0.42:  # about a slot of any kind
        unrelated = world.sentence(r.choice(KINDS), world.date()).slot or slot
        prefix = note(unrelated, unrelated.answer)
    else:
        prefix = note(slot, slot.answer)
    before = [world.filler(day, register) for _ in range(r.choice((0, 0, 1, 2, 3, 4, 6)))]
    after = [world.filler(day, register) for _ in range(r.choice((0, 1, 2)))]
    if r.random() < 0.3:  # a sentence for which this note is of no use
        before.insert(r.randint(0, len(before)), world.sentence(r.choice(KINDS), day, register=register))
    if kind == "date" and r.random() < 0.3:
        after.append(world.sentence("date", day, register=register))
    return prefix + join([*before, main, *after], day).text


def lessons(seed: int, pieces: Sequence[str] = ()) -> Iterator[str]:
    """Yield an endless stream of pretraining texts, the same for equal arguments. `pieces`: see `lexicon.Namer`."""
    world = World("pretrain", seed)
    world.namer.pieces = pieces
    r = random.Random(f"lessons/{seed}")
    while True:
        chance = r.random()
        if chance < 0.20:
            kinds = [kind for kind in KINDS if r.random() < 0.35]
            yield world.document(kinds, r.randint(4, 10)).text
        elif chance < 0.55:
            yield _note_lesson(world, r)
        else:
            yield _tool_lesson(world, r)
