"""Has the trainers' own loaders read our exports, and prints what they made of them.

    python -m certify --environments .certify           # all loaders; minutes, and some gigabytes at the first time
    python -m certify --only trl --json

Exit 1 if a loader that is installed reads something else than was promised, or if `datasets` or TRL cannot be
installed. Another loader that cannot be installed is a row of its own and fails nothing.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.report import parser_of, print_json, progress, say
from certify.cases import LOADERS, Files, cases_of
from certify.chat_templates import TEMPLATES, save_tokenizer
from certify.checks import check
from certify.cstar import difficult_cstar, export_all
from certify.environments import NotInstalledError, environment, pinned, run_program
from certify.promise import byte_pieces
from toolformer_core.errors import ToolformerError


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


def table_of(rows: Sequence[TableRow]) -> Table:
    table = Table()
    for field in fields(TableRow)[:-1]:
        table.add_column(field.name.replace("_", " "), justify="right" if field.type == int | None else "left")
    for row in rows:
        cells = astuple(row)[:-1]
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else escape(cell or "") for cell in cells))
    return table


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
    Console(width=160).print(table_of(rows))
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
