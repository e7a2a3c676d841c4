"""What benchmarks share: the parser of their options, lines for people, one JSON object for a program."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with `--json`, whose help is a benchmark's docstring as it stands."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser


def say(text: str = "") -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def progress(text: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(text + "\n")


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    say(json.dumps(value))
