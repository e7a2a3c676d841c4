"""Shows the progress of an index that is being written: a bar on a terminal, elsewhere a line a minute.

How much of the source's file has been read is the measure; it only prints.
"""

import time
from collections.abc import Callable

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cli.render.console import Display
from flows.runtime.progress import duration
from toolformer_core.tools.search.index_writer import IndexProgress

_SHOW_S = 0.1  # seconds between two changes of the bar


class IndexDisplay(Display):
    """Shows on standard error how far a source is indexed; call it with each progress."""

    def __init__(
        self, size: int, limit: int | None, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(
            TextColumn("indexing"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            quiet=quiet,
            clock=clock,
        )
        self.size, self.limit = size, limit
        self.bar = self.bars.add_task("", total=1.0, note="")
        self.shown_at = -_SHOW_S
        self.first: tuple[float, float] | None = None  # when this run's first progress came, and the share then
        self.last: IndexProgress | None = None

    def __call__(self, progress: IndexProgress) -> None:
        """Show that one more record is indexed."""
        now = self.clock()
        self.last = progress
        if self.first is None:
            self.first = (now, self._share(progress))
            if progress.position.records > 1:
                self.lines.say(f"going on after record {progress.position.records - 1:,}; {self._line()}")
        if self.console.is_terminal and now - self.shown_at >= _SHOW_S:
            self.shown_at = now
            self.bars.update(self.bar, completed=self._share(progress), note=f"{progress.passages:,} passages")

    def _share(self, progress: IndexProgress) -> float:
        read = progress.read / self.size if self.size else 1.0
        return min(1.0, max(read, progress.passages / self.limit if self.limit else 0.0))

    def _line(self) -> str:
        progress = self.last
        if progress is None or self.first is None:
            return ""
        share, (began, from_share) = self._share(progress), self.first
        line = f"{progress.passages:,} passages indexed, {share:.0%} of the work"
        if share > from_share and (elapsed := self.clock() - began) > 0:
            line += f"; {duration(elapsed / (share - from_share) * (1 - share))} left"
        return line

    def _due_lines(self, due: bool) -> list[str]:
        return [line] if due and (line := self._line()) else []
