"""Rich's console, changed so that texts of a corpus, a tool or a model cannot steer the terminal.

Rich's own control codes (colours, progress bars) pass; those within a text are replaced by `visible`. This module knows
no command.
"""

from __future__ import annotations

from collections.abc import Iterator

import rich.console
from rich.box import SIMPLE_HEAD
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from cli.terminal import visible


class Console(rich.console.Console):
    """A console on which every control character of a printed text is visible."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as Rich does, with each text made `visible`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def narrow_table(title: str) -> Table:
    """Return an empty table with little space between columns, for terminals of 80 columns."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
