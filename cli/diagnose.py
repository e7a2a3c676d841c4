"""The command `diagnose`: can this model teach itself these tools, and if not, which step prevents it?

It prints the results of `toolformer_core.diagnose` and judges nothing itself. It imports what it needs when it runs,
and reports mistakes before a model is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
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
    from toolformer_core.diagnose.gold import GoldTexts
    from toolformer_core.diagnose.run import DiagnoseConfig, Diagnosis
    from toolformer_core.tools.base import Tool


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
    numbers: Annotated[str, option_of(BuildParameters, "numbers")] = "any",
    draw_form: Annotated[str, option_of(BuildParameters, "draw_form")] = "free",
    keep_repeats: Annotated[bool | None, option_of(BuildParameters, "keep_repeats")] = None,
    prompts: Annotated[Path | None, option_of(BuildParameters, "prompts")] = None,
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

    With --chat-template it compares the annotation prompts without and with the template, and ends with 0.

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
        numbers=numbers,
        draw_form=draw_form,
        keep_repeats=keep_repeats,
    )
    if chat_template:
        if out is not None:
            raise UsageError("--chat-template prints a table and draws no pictures: leave --out out")
        _compare_templates(model, loaded_tools, texts, config, chat_template, as_json)
        return
    reference = read_reference()
    if out is not None:
        _make_writable_folder(out)
    diagnoses: list[Diagnosis] = []
    from cli.render.diagnosis import DiagnosisDisplay, print_diagnosis, print_verdicts

    try:
        with DiagnosisDisplay(as_json) as display:
            credentials = model_credentials(model)
            for diagnosis in run(model, loaded_tools, texts, config, reference, display, credentials):
                diagnoses.append(diagnosis)
                if not as_json:
                    print_diagnosis(display.stdout, diagnosis)
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
        print_verdicts(diagnoses, comparable=reference.texts == texts.digest)
    if out is not None:  # last, so that a full disk cannot lose the printed answer
        _write_files(out, model, diagnoses, report)
        if not as_json:
            print(f"pictures and diagnosis.json lie in {out}")
    if not all(diagnosis.verdict.teachable for diagnosis in diagnoses):
        raise typer.Exit(1)


def _compare_templates(
    model: str,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    chat_template: str,
    as_json: bool,
) -> None:
    """Print the figures of the tools' prompts in plain text and in a chat."""
    from cli.render.diagnosis import print_templates
    from toolformer_core.diagnose.run import check_config
    from toolformer_core.diagnose.templates import measure_templates
    from toolformer_core.lm.load import load_model, load_tokenizer
    from toolformer_core.prompts.chat import NONE, prompt_in_chat

    check_config(tools, config)
    templates = list(dict.fromkeys((NONE, chat_template)))
    tokenizer = load_tokenizer(model).tokenizer
    for tool in tools.values():  # also before a model is loaded
        prompt_in_chat(config.prompt(tool), tokenizer, chat_template)
    lm, rows = load_model(model, credentials=model_credentials(model)), []
    for row in measure_templates(lm, tools, texts, config, templates):
        rows.append(row)
        in_chat = "" if row.chat_template == NONE else " in a chat"
        print(f"{row.tool:<10} prompt{in_chat} measured", file=sys.stderr)
    if as_json:
        print_json({"model": model, "texts": texts.digest, "prompts": [asdict(row) for row in rows]})
    else:
        print_templates(rows)


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


def _write_files(folder: Path, model: str, diagnoses: Iterable[Diagnosis], report: dict[str, Any]) -> None:
    import json

    from toolformer_core.diagnose.picture import draw, gains_of

    for diagnosis in diagnoses:
        figures = diagnosis.measured.figures
        name = f"{figures.tool}.png"
        draw(figures.tool, model, gains_of(diagnosis.measured.observed), figures.filter.tau_f, folder / name)
    text = json.dumps(only_finite(report), indent=1, ensure_ascii=False)
    (folder / "diagnosis.json").write_text(text + "\n", encoding="utf-8")
