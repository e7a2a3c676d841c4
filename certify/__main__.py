"""Has the trainers' own loaders read our exports, and prints what they made of them.

    python -m certify --environments .certify           # all loaders; minutes, and some gigabytes at the first time
    python -m certify --only trl --json

Exit 1 if a loader that is installed reads something else than was promised, or if `datasets` or TRL cannot be
installed. Another loader that cannot be installed is a row of its own and fails nothing.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import parser_of, print_json, progress, say
from certify.cases import LOADERS, Files, cases_of
from certify.chat_templates import TEMPLATES, save_tokenizer
from certify.checks import check
from certify.cstar import difficult_cstar, export_all
from certify.environments import NotInstalledError, environment, pinned, run_program
from certify.promise import byte_pieces
from flows.report.tables import markdown_table
from toolformer_core.errors import ToolformerError

_HEADS = ("loader", "version", "format", "template", "rows in", "rows read", "trained", "masked", "result")
_NUMBERS = range(4, 8)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A loader and a file, or a loader that could not be installed."""

    loader: str
    version: str
    format: str = ""
    template: str = ""
    rows_in: int | None = None
    rows_read: int | None = None
    trained: int | None = None  # tokens
    masked: int | None = None
    result: str = "ok"
    fails: bool = False  # whether the command fails for it

    def cells(self) -> tuple[str, ...]:
        numbers = (self.rows_in, self.rows_read, self.trained, self.masked)
        shown = ("" if number is None else f"{number:,}" for number in numbers)
        return (self.loader, self.version, self.format, self.template, *shown, self.result)


def table_of(rows: Sequence[TableRow]) -> str:
    cells = [_HEADS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *aligned = (
        [cell.rjust(width) if i in _NUMBERS else cell.ljust(width) for i, (cell, width) in enumerate(pairs)]
        for pairs in (zip(line, widths, strict=True) for line in cells)
    )
    return markdown_table(head, aligned)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--environments", type=Path, default=Path(".certify"), help="where environments and logs are kept"
    )
    parser.add_argument("--only", choices=list(LOADERS), help="one loader alone")
    options = parser.parse_args(arguments)
    options.environments.mkdir(parents=True, exist_ok=True)
    rows: list[TableRow] = []
    with TemporaryDirectory() as folder:
        files = _exported(Path(folder))
        for loader in [options.only] if options.only else LOADERS:
            rows += _rows_of(loader, files, options.environments)
    say()
    say(table_of(rows))
    fails = any(row.fails for row in rows)
    if options.json:
        print_json({"ok": not fails, "rows": [asdict(row) for row in rows]})
    return int(fails)


def _exported(folder: Path) -> Files:
    progress("making C*, and exporting it in every format")
    files = Files(folder / "exports", folder / "tokenizers")
    for name, template in {"plain": None, **TEMPLATES}.items():
        save_tokenizer(files.tokenizers / name, template)
    export_all(difficult_cstar(folder / "data"), files.exports, files.tokenizers)
    return files


def _rows_of(loader: str, files: Files, environments: Path) -> Iterator[TableRow]:
    version = pinned(loader, loader)
    try:
        progress(f"{loader} {version}: its environment")
        yield from _case_rows(loader, files, environment(loader, environments), environments)
    except NotInstalledError as exc:
        yield TableRow(loader, version, result=f"not installed: {exc}", fails=LOADERS[loader])
    except ToolformerError as exc:
        yield TableRow(loader, version, result=str(exc), fails=True)


def _case_rows(loader: str, files: Files, python: Path, environments: Path) -> Iterator[TableRow]:
    from transformers import AutoTokenizer

    cases = [case for case in cases_of(files) if case.loader == loader]
    progress(f"{loader}: {len(cases)} files to read")
    jobs = [case.job(files) for case in cases]
    done = run_program(python, f"with_{loader}", jobs, environments / f"{loader}.log")
    texts = frozenset(row["text"] for row in files.rows("jsonl.jsonl"))
    pieces = {
        name: byte_pieces(AutoTokenizer.from_pretrained(files.tokenizers / name)) for name in ("plain", *TEMPLATES)
    }
    for case, answer in zip(cases, done["answers"], strict=True):
        version = done["versions"]["transformers" if case.by == "Trainer" else loader]
        found = check(case.expected, answer, pieces[case.tokenizer], texts)
        numbers = (found.rows_in, found.rows_read, found.trained, found.masked)
        result, fails = found.failure or "ok", bool(found.failure)
        yield TableRow(case.by, version, case.format, case.template, *numbers, result, fails)


if __name__ == "__main__":
    sys.exit(main())
