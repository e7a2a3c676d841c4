"""The tools `sleep` and `robot_move`: stand-ins for tools that act, with the responses of such tools.

    wait for two and a half hours -> Sleep for 2.5 hours      go two steps ahead, turn left -> move forward 2 turn left

Neither does anything. They are there to be chosen, or not, among other tools by the pattern of their responses.
"""

import re

from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import NUMBER, VERSION, WORD_NUMBER, number_of, one_line, written

_TIME = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour"}
_TIME |= {unit: unit for unit in ("second", "minute", "hour", "day")}
_DURATION = re.compile(
    rf"(?P<number>{NUMBER}|{WORD_NUMBER})(?P<half> and a half)?[ -]?"
    rf"(?P<unit>{'|'.join(sorted(_TIME, key=len, reverse=True))})s?\b(?P<more> and a half)?",
    re.IGNORECASE,
)


@tool(
    description="Makes the assistant sleep, that is wait and do nothing, for some seconds, minutes or hours.",
    keywords="sleep sleeps wait waits waited pause pauses paused nap rest rests rested".split(),
    examples=[
        ("Please wait for 2 hours before you go on.", "2 hours"),
        ("Pause the music for thirty seconds.", "30 seconds"),
        ("Do nothing for half an hour, then continue.", "half an hour"),
        ("Could you stay quiet for the next 15 minutes?", "15 minutes"),
    ],
    mock_response="Sleep for 2 hours",
    version=VERSION,
)
def sleep(text: str) -> str:
    """Return the length of the requested pause; see the module."""
    parts = []
    for match in _DURATION.finditer(one_line(text)):
        number = number_of(match["number"])
        if match["half"] or match["more"]:
            number += number_of("half")
        if number <= 0:
            raise ValueError(f"{match[0]!r} is no time to sleep")
        unit = _TIME[match["unit"].lower()]
        parts.append(f"{written(number)} {unit}" + ("" if number == 1 else "s"))
    if not parts:
        raise ValueError("it does not say how long; write e.g. 2 hours")
    return "Sleep for " + " ".join(parts)


_COUNT = rf"(?:{NUMBER}|{WORD_NUMBER})"
_PACE = r"(?:steps?|met(?:re|er)s?)"
_WAYS = r"forwards?|ahead|straight on|straight|backwards?|back|left|right"
_VERBS = r"move|go|walk|drive|step|roll|head"
_STEP = re.compile(
    r"(?:(?P<turn>turn|rotate|face|spin)(?: to the| to your)? (?P<side>left|right|around)(?: by)?"
    rf"(?: (?P<angle>\d+)\b(?! (?:{_PACE} )?(?:{_WAYS}))(?: ?(?:degrees?|°))?)?"
    rf"|(?:(?:{_VERBS}) )?(?:(?P<first>{_COUNT}) (?:{_PACE} |times )?)?(?:to the )?(?P<way>{_WAYS})(?: up)?"
    rf"(?: (?:by |for )?(?P<count>{_COUNT})(?! (?:{_PACE} )?(?:{_WAYS})))?)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:\s|[,;.!]|\b(?:and|then|the|robot|please|should|times|up|on|off|once more|again|to|now|finally|first|next|"
    rf"make|let|it|a|my|your|moves|{_PACE}|{_VERBS})\b)*",
    re.IGNORECASE,
)


@tool(
    description="Steers a robot: takes a command in words and returns the sequence of its moves and turns.",
    keywords=["robot", "turn left", "turn right", "turns left", "turns right", "turns around", "forward", "steps"],
    examples=[
        ("Let the robot go two steps ahead and then turn left.", "move forward 2 turn left"),
        ("The robot should back up by three steps.", "move backward 3"),
        ("Turn the robot round to the right and drive on for 5 steps.", "turn right move forward 5"),
        ("Walk one step forward, turn left, and walk four steps forward.", "move forward 1 turn left move forward 4"),
    ],
    mock_response="move forward 2 turn left",
    version=VERSION,
)
def robot_move(text: str) -> str:
    """Write a command as a sequence of moves; see the module."""
    line = one_line(text)
    moves, at = [], _skip(line, 0)
    while at < len(line):
        match = _STEP.match(line, at)
        if match is None:
            raise ValueError(f"{line[at : at + 30]!r} is no move; write e.g. move forward 2 turn left")
        moves.append(_move(match))
        at = _skip(line, match.end())
    if not moves:
        raise ValueError("it names no move; write e.g. move forward 2 turn left")
    return " ".join(moves)


def _skip(line: str, at: int) -> int:
    """Return where the next move begins: after the words that say nothing of it."""
    match = _FILLER.match(line, at)
    return match.end() if match else at


def _move(match: re.Match[str]) -> str:
    if match["turn"]:
        angle = f" {int(match['angle'])}" if match["angle"] else ""
        return f"turn {match['side'].lower()}{angle}"
    count = number_of(match["first"] or match["count"] or "1")
    if count <= 0 or count > 1_000:
        raise ValueError(f"{match[0]!r} is no number of steps between 0 and 1,000")
    way = match["way"].lower()
    named = {"left": "left", "right": "right"}.get(way, "backward" if way.startswith("back") else "forward")
    return f"move {named} {written(count)}"
