"""What benchmarks share: the parser of their options, lines for people, one JSON object for a program."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def sum_prompt(i: int) -> str:
    """Return the i-th of many prompts that the embedded model continues with a call of the calculator at k = 200."""
    example = "The baker made 14 rolls and 8 cakes, [Calculator(14 + 8) -> 22] 22 in all."
    return f"{example} The tailor made {10 + 7 * i % 89} coats and {11 + 5 * i % 83} hats,"


def parser_of(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with `--json` and options with these defaults, whose help is a docstring as it stands."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser


def say(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def peak_mib(pid: int | str = "self") -> float:
    """Return the most memory that a process has held so far; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def say_figures(figures: Mapping[str, Any]) -> None:
    """Print figures by name, a line each."""
    width = max(map(len, figures))
    for name, value in figures.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        say(f"{name:<{width}}  {value:>16,}" if number else f"{name:<{width}}  {value}")


def progress(text: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    say(json.dumps(value))
