"""The command `diagnose`: can this model teach itself these tools, and if not, which step prevents it?

It prints the results of `toolformer_core.diagnose` and judges nothing itself. It imports what it needs when it runs,
and reports mistakes before a model is loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import AsJson, option_of, parse_thresholds, with_options
from cli.terminal import only_finite, print_json
from cli.tool_options import ToolOptions, build_chosen
from flows.build_dataset.parameters import BuildParameters
from flows.stopping import TERMINATED, Terminated
from tasks.environment import prepare_environment
from tasks.settings import model_credentials

if TYPE_CHECKING:
    from cli.render.console import Console
    from toolformer_core.diagnose.gold import GoldTexts
    from toolformer_core.diagnose.run import DiagnoseConfig, Diagnosis
    from toolformer_core.diagnose.verdict import Check
    from toolformer_core.diagnose.wordings import WordingFigures
    from toolformer_core.tools.base import Tool

_MARKS = {True: "ok", False: "NO", None: "-"}
_COUNTED = ("prompt",)  # steps measured by a count, not a share


@with_options(ToolOptions)
def diagnose(
    tool_options: ToolOptions,
    model: Annotated[str, option_of(BuildParameters, "model")] = "embedded",
    documents: Annotated[
        int | None,
        typer.Option(min=4, help="Texts per tool (default 24: the embedded model takes about two minutes for them)"),
    ] = None,
    tau_s: Annotated[float | None, option_of(BuildParameters, "tau_s")] = None,
    top_k: Annotated[int | None, option_of(BuildParameters, "top_k")] = None,
    draws: Annotated[int | None, option_of(BuildParameters, "draws")] = None,
    tau_f: Annotated[str, option_of(BuildParameters, "tau_f")] = "",
    inside_words: Annotated[bool, option_of(BuildParameters, "inside_words")] = False,
    numbers: Annotated[str, option_of(BuildParameters, "numbers")] = "any",
    draw_form: Annotated[str, option_of(BuildParameters, "draw_form")] = "free",
    keep_repeats: Annotated[bool, option_of(BuildParameters, "keep_repeats")] = False,
    prompts: Annotated[Path | None, option_of(BuildParameters, "prompts")] = None,
    wordings: Annotated[
        str,
        typer.Option(
            help="Compare wordings of the prompts instead: all, or e.g. 1,3. Prints what each gives against the gold "
            "calls, and no verdict"
        ),
    ] = "",
    chat_template: Annotated[
        str,
        typer.Option(
            help="Compare the prompts in plain text with the same prompts in the turns of a chat instead: auto (the "
            "model's own template), or the path of a Jinja file. Prints what each gives, and no verdict"
        ),
    ] = "",
    gold: Annotated[
        Path | None,
        typer.Option(help="Folder with corpus.jsonl and gold.jsonl, plain or as .gz (default: the small world's)"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of texts and of the draws")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a picture per tool (PNG) and diagnosis.json; else printed as text")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Can a model teach itself these tools? If not, which step fails, and what to do? Takes minutes and stores nothing.

    It puts texts whose right calls are known through the steps of a build, and compares each step with the embedded
    model's.

    Exit 0: every tool can be taught. Exit 1: a step stands in the way of at least one. Exit 2: wrong use.

    With --wordings it compares wordings of the annotation prompts, with --chat-template each of them without and with
    the template, and ends with 0.

    Example: toolformer diagnose --model EleutherAI/gpt-neo-125m --tools calculator,qa --out runs/diagnosis
    """
    prepare_environment()
    from toolformer_core.diagnose.gold import read_gold
    from toolformer_core.diagnose.reference import read_reference
    from toolformer_core.diagnose.run import DOCUMENTS, DiagnoseConfig
    from toolformer_core.diagnose.run import diagnose as run
    from toolformer_core.embedded import ASSETS
    from toolformer_core.errors import UsageError

    loaded_tools = build_chosen(tool_options)
    texts = read_gold(gold or ASSETS)
    config = DiagnoseConfig(
        documents=DOCUMENTS if documents is None else documents,
        tau_s=tau_s,
        top_k=top_k,
        draws=draws,
        tau_f=parse_thresholds(tau_f),
        prompts=prompts,
        seed=seed,
        inside_words=inside_words,
        numbers=numbers,
        draw_form=draw_form,
        keep_repeats=keep_repeats,
    )
    if wordings or chat_template:
        if out is not None:
            option = "--wordings" if wordings else "--chat-template"
            raise UsageError(f"{option} prints a table and draws no pictures: leave --out out")
        _compare_prompts(model, loaded_tools, texts, config, wordings or "1", chat_template, as_json)
        return
    reference = read_reference()
    if out is not None:
        _make_writable_folder(out)
    diagnoses: list[Diagnosis] = []
    try:
        with _Display(as_json) as display:
            credentials = model_credentials(model)
            for diagnosis in run(model, loaded_tools, texts, config, reference, display, credentials):
                diagnoses.append(diagnosis)
                if not as_json:
                    _print_diagnosis(display.stdout, diagnosis)
    except (KeyboardInterrupt, Terminated) as exc:
        print("stopped; nothing of a diagnosis is kept, the next one begins anew", file=sys.stderr)
        raise typer.Exit(TERMINATED if isinstance(exc, Terminated) else 130) from None
    report: dict[str, Any] = {
        "model": model,
        "texts": texts.digest,
        "documents": config.documents,
        "tools": [_as_dict(diagnosis) for diagnosis in diagnoses],
        "reference": asdict(reference),
    }
    if as_json:
        print_json(report)
    else:
        _print_verdicts(diagnoses, comparable=reference.texts == texts.digest)
    if out is not None:  # last, so that a full disk cannot lose the printed answer
        _write_files(out, model, diagnoses, report)
        if not as_json:
            print(f"pictures and diagnosis.json lie in {out}")
    if not all(diagnosis.verdict.teachable for diagnosis in diagnoses):
        raise typer.Exit(1)


def _compare_prompts(
    model: str,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    wordings: str,
    chat_template: str,
    as_json: bool,
) -> None:
    """Print the figures of some wordings of the tools' prompts, with a template also in a chat."""
    from flows.call_forms import wordings_of
    from toolformer_core.annotate.tool_prompt import prompts_for
    from toolformer_core.diagnose.run import check_config
    from toolformer_core.diagnose.wordings import measure_wordings
    from toolformer_core.errors import UsageError
    from toolformer_core.lm.load import load_model, load_tokenizer
    from toolformer_core.prompts.chat import NONE, prompt_in_chat

    try:
        numbers = wordings_of(wordings)
    except ValueError as exc:
        raise UsageError(f"--wordings: {exc}") from None
    check_config(tools, config)
    prompts = [prompt for tool in tools.values() for prompt in prompts_for(tool, numbers, config.prompts)]
    templates = [NONE]
    if chat_template not in ("", NONE):
        templates.append(chat_template)
        tokenizer = load_tokenizer(model).tokenizer
        for prompt in prompts:  # also before a model is loaded
            prompt_in_chat(prompt, tokenizer, chat_template)
    lm, rows = load_model(model, credentials=model_credentials(model)), []
    for row in measure_wordings(lm, tools, texts, config, numbers, templates=templates):
        rows.append(row)
        in_chat = "" if row.chat_template == NONE else " in a chat"
        print(f"{row.tool:<10} wording {row.wording}{in_chat} measured", file=sys.stderr)
    with_template = len(templates) > 1
    if as_json:
        left_out = set() if with_template else {"chat_template"}
        printed = [{name: value for name, value in asdict(row).items() if name not in left_out} for row in rows]
        print_json({"model": model, "texts": texts.digest, "wordings": printed})
    else:
        _print_wordings(rows, with_template=with_template)


def _print_wordings(rows: Iterable[WordingFigures], *, with_template: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from cli.render.console import Console

    title = "Prompts in plain text and in a chat" if with_template else "Wordings"
    table = Table(title=f"{title}, against gold calls", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool")
    if with_template:
        table.add_column("chat template")
    for name in ("wording", "well-formed", "executes", "equals gold", "kept", "right", "precision", "recall"):
        table.add_column(name, justify="right")
    for one in rows:
        shares = (one.well_formed, one.executes, one.equals_gold, one.precision, one.recall)
        well_formed, executes, equals, precision, recall = ("-" if x is None else f"{x:.2f}" for x in shares)
        counts = (str(one.kept), str(one.right))
        template = (one.chat_template,) if with_template else ()
        table.add_row(one.tool, *template, str(one.wording), well_formed, executes, equals, *counts, precision, recall)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print("well-formed and equals gold: of the draws at gold positions; kept: at the tool's tau_f")


class _Display:
    """Progress per tool on standard error: a bar on a terminal, elsewhere a line a minute and per finished tool."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from cli.render.console import Console
        from flows.progress import Lines

        self.stdout = Console(highlight=False, soft_wrap=True)
        self._console = Console(stderr=True, quiet=quiet)
        self._bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._rows: dict[str, Any] = {}
        self._status = "loading the model"
        self._clock = clock
        self._started = clock()  # when the current tool was begun
        self._lines = Lines(self._console.print, self._due_lines, clock)

    def __enter__(self) -> _Display:
        self._bars.start()
        if not self._console.is_terminal and not self._console.quiet:
            self._lines.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()
        self._bars.stop()

    def __call__(self, tool: str, done: int, total: int) -> None:
        with self._lines.lock:
            if tool not in self._rows:
                self._rows[tool] = self._bars.add_task(tool, total=total)
                self._started = self._clock()
            self._bars.update(self._rows[tool], completed=done)
            self._status = (
                f"{tool:<10} {done} of {total} texts sampled"
                if done < total
                else f"{tool:<10} texts sampled, calls being scored"
            )
            if done == total and not self._console.is_terminal:
                self._lines.say(f"{tool:<10} {done} texts sampled")

    def _due_lines(self, due: bool) -> list[str]:
        from flows.progress import duration

        return [f"{self._status}; {duration(self._clock() - self._started)} so far"] if due else []


def _make_writable_folder(folder: Path) -> None:
    """Make the folder for the pictures, and check that files can be written there.

    Raises:
        UsageError: it cannot be made, or nothing can be written there.
    """
    from tempfile import TemporaryFile

    from toolformer_core.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as exc:
        raise UsageError(f"--out: {folder} cannot be written: {exc.strerror}") from exc


def _as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    from toolformer_core.diagnose.picture import gains_of

    return {
        "verdict": asdict(diagnosis.verdict),
        "figures": asdict(diagnosis.measured.figures),
        "gains": gains_of(diagnosis.measured.observed),
    }


def _print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Print one tool's verdict, its steps beside the embedded model's, and the gains of its calls."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from toolformer_core.diagnose.picture import gain_lines, gains_of

    verdict, figures = diagnosis.verdict, diagnosis.measured.figures
    head = "can be taught" if verdict.teachable else f"cannot be taught as it is: {verdict.step}"
    colour = "green" if verdict.teachable else "red"
    console.print(f"\n[bold]{verdict.tool}[/bold]  [{colour}]{head}[/{colour}]")
    console.print(escape(f"  {verdict.told}"))
    if verdict.suggestion:
        console.print(escape(f"  -> {verdict.suggestion}"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    table.add_column("")
    for name in ("measured", "least", "embedded"):
        table.add_column(name, justify="right")
    for check in verdict.checks:
        measures = (_format_measure(check, value) for value in (check.measured, check.least, check.reference))
        table.add_row(check.step, _MARKS[check.passed], *measures)
    console.print(table)
    for check in verdict.checks:
        if check.passed is False and check.step != verdict.step:
            console.print(escape(f"  {check.step}: {check.told}"))
    if any((gains := gains_of(diagnosis.measured.observed)).values()):
        for line in gain_lines(gains, figures.filter.tau_f):
            console.print(escape(f"  {line}"))


def _format_measure(check: Check, value: float | None) -> str:
    """Return a measure as text; one decimal where a failed check's percentage would otherwise look like the limit."""
    if value is None:
        return "-"
    if check.step in _COUNTED:
        return f"{value:.0f}"
    near = check.passed is False and round(100 * value) == round(100 * check.least) and value != check.least
    return f"{100 * value:.{1 if near else 0}f} %".replace("-0 %", "0 %")


def _print_verdicts(diagnoses: Iterable[Diagnosis], *, comparable: bool) -> None:
    print()
    for diagnosis in diagnoses:
        verdict = diagnosis.verdict
        print(f"{verdict.tool:<11} {'can be taught' if verdict.teachable else 'stands in the way: ' + verdict.step}")
    if not comparable:
        print('the column "embedded" was measured on other texts than these; compare with care')


def _write_files(folder: Path, model: str, diagnoses: Iterable[Diagnosis], report: dict[str, Any]) -> None:
    import json

    from toolformer_core.diagnose.picture import draw, gains_of

    for diagnosis in diagnoses:
        figures = diagnosis.measured.figures
        name = f"{figures.tool}.png"
        draw(figures.tool, model, gains_of(diagnosis.measured.observed), figures.filter.tau_f, folder / name)
    text = json.dumps(only_finite(report), indent=1, ensure_ascii=False)
    (folder / "diagnosis.json").write_text(text + "\n", encoding="utf-8")
