"""Rich's console, changed so that texts of a corpus, a tool or a model cannot steer the terminal.

Rich's own control codes (colours, progress bars) pass; those within a text are replaced by `visible`. This module knows
no command.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Self

import rich.console
from rich.box import SIMPLE_HEAD
from rich.console import ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.table import Table

from cli.terminal import visible
from flows.runtime.progress import Lines


class Console(rich.console.Console):
    """A console on which every control character of a printed text is visible."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as Rich does, with each text made `visible`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def narrow_table(title: str) -> Table:
    """Return an empty table with little space between columns, for terminals of 80 columns."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


class Display(ABC):
    """Progress on standard error: bars on a terminal, elsewhere lines. A class that extends it says which.

    Args:
        quiet: show nothing (for `--json`).
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *columns: ProgressColumn,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        transient: bool = False,
    ) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.bars = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=transient)
        self.clock = clock
        self.lines = Lines(self._print, self._due_lines, clock)

    def __enter__(self) -> Self:
        self.bars.start()
        if not self.console.is_terminal and not self.console.quiet:
            self.lines.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.lines.close()
        self.bars.stop()

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, highlight=False, markup=False)

    @abstractmethod
    def _due_lines(self, due: bool) -> list[str]:
        """Return the lines to print now; see `flows.runtime.progress.Lines`."""
