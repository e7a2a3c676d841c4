"""Rich's console, changed so that texts of a corpus, a tool or a model cannot steer the terminal.

Rich's own control codes (colours, progress bars) pass; those within a text are replaced by `visible`.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import rich.console
from rich.box import SIMPLE_HEAD
from rich.console import ConsoleOptions, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.table import Table

from cli.terminal import visible
from flows.runtime.progress import LINE_S

_POLL_S = 1.0  # seconds between two checks whether a line is due


class Console(rich.console.Console):
    """A console on which every control character of a printed text is visible, and numbers have no colours."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, **options})

    def say(self, text: str, style: str | None = None) -> None:
        """Print a text as it stands, without line breaks, so that it can be copied."""
        self.print(text, style=style, soft_wrap=True, markup=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as Rich does, with each text made `visible`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def narrow_table(
    title: str = "",
    texts: Sequence[str] = (),
    figures: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    *,
    no_wrap: bool = False,
    gap: int = 1,
) -> Table:
    """Return a table with little space between columns, for terminals of 80 columns: columns of texts, then figures."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False)
    for name in (*texts, *figures):
        table.add_column(name, justify="right" if name in figures else "left", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*row)
    return table


def stages_table(title: str, figures: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 1) -> Table:
    """Return a table of stages, tools and figures, without empty columns; a row of the stage `in all` is bold."""
    filled = [i for i in range(len(figures)) if any(row[2 + i] for row in rows)]
    table = narrow_table(title, ("stage", "tool"), [figures[i] for i in filled], no_wrap=True, gap=gap)
    for row in rows:
        table.add_row(*row[:2], *(row[2 + i] for i in filled), style="bold" if row[0] == "in all" else "")
    return table


def shards_line(result: Any) -> str:
    """Return how many shards a flow's result took, and how long."""
    skipped = f", {result.skipped} found done" if result.skipped else ""
    return f"{result.done} shards worked on{skipped}, {result.seconds:.0f} s."


class Display(ABC):
    """Progress on standard error: bars on a terminal, elsewhere lines, also from a thread when one is due.

    Hold `lock` while changing what `_due_lines` reads.
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
        self.lock = threading.RLock()  # reentrant: a signal's handler may call `close` while its thread writes a line
        self._last = clock()  # when a line was written
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.bars.start()
        if not self.console.is_terminal and not self.console.quiet:
            threading.Thread(target=self._keep_polling, name="progress", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was, write no more. Joining the thread in a signal's handler may deadlock."""
        with self.lock:
            self._ended.set()
        self.bars.stop()

    def say(self, line: str) -> None:
        with self.lock:
            if not self._ended.is_set():
                self._last = self.clock()
                self._print(line)

    def poll(self) -> None:
        """Write the lines that are due."""
        with self.lock:
            for line in self._due_lines(self.clock() - self._last >= LINE_S):
                self.say(line)

    def _keep_polling(self) -> None:
        while not self._ended.wait(_POLL_S):
            with suppress(OSError):  # a closed pipe, or a full disk of a log, must not stop the work
                self.poll()

    def _print(self, line: str) -> None:
        self.console.say(line)

    @abstractmethod
    def _due_lines(self, due: bool) -> list[str]:
        """Return the lines to print now, by whether one is due; called every second."""
