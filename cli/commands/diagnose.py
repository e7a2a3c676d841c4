"""The command `diagnose`: can this model teach itself these tools, and if not, which step prevents it?"""

import sys
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from cli.options import AsJson, option_of, parse_thresholds, with_options
from cli.terminal import print_json
from cli.tool_options import ToolOptions, build_chosen
from flows.build_dataset.parameters import BuildParameters
from flows.runtime.stopping import TERMINATED, Terminated
from tasks.environment import prepare_environment
from tasks.settings import model_credentials


@with_options(ToolOptions)
def diagnose(
    tool_options: ToolOptions,
    model: Annotated[str, option_of(BuildParameters, "model")] = "embedded",
    documents: Annotated[int, Option(min=4, help="Texts per tool; of 24, the embedded model takes two minutes")] = 24,
    tau_s: Annotated[float | None, option_of(BuildParameters, "tau_s")] = None,
    top_k: Annotated[int | None, option_of(BuildParameters, "top_k")] = None,
    samples: Annotated[int | None, option_of(BuildParameters, "samples")] = None,
    tau_f: Annotated[str, option_of(BuildParameters, "tau_f")] = "",
    numbers: Annotated[str, option_of(BuildParameters, "numbers")] = "any",
    draw_form: Annotated[str, option_of(BuildParameters, "draw_form")] = "free",
    keep_repeats: Annotated[bool | None, option_of(BuildParameters, "keep_repeats")] = None,
    prompts: Annotated[Path | None, option_of(BuildParameters, "prompts")] = None,
    gold: Annotated[Path | None, Option(help="Folder of corpus.jsonl and gold.jsonl (default: our own)")] = None,
    seed: Annotated[int, Option(min=0, help="Of the choice of texts and of the samples")] = 0,
    as_json: AsJson = False,
) -> None:
    """Can a model teach itself these tools? If not, which step fails, and what to do? Takes minutes and stores nothing.

    It puts texts whose right calls are known through the steps of a build, and compares each step with the embedded
    model's.

    Exit 0: every tool can be taught. Exit 1: a step stands in the way of at least one. Exit 2: wrong use.

    Example: toolformer diagnose --model EleutherAI/gpt-neo-125m --tools calculator,qa
    """
    prepare_environment()
    from toolformer_core.diagnose.gold import read_gold
    from toolformer_core.diagnose.reference import read_reference
    from toolformer_core.diagnose.run import DiagnoseConfig, check_config, measure
    from toolformer_core.diagnose.verdict import judge
    from toolformer_core.embedded import ASSETS
    from toolformer_core.lm.load import load_model

    tools = build_chosen(tool_options)
    texts = read_gold(gold or ASSETS)
    config = DiagnoseConfig(
        documents=documents,
        tau_s=tau_s,
        top_k=top_k,
        samples=samples,
        tau_f=parse_thresholds(tau_f),
        prompts=prompts,
        seed=seed,
        numbers=numbers,
        draw_form=draw_form,
        keep_repeats=keep_repeats,
    )
    check_config(tools, config)
    reference = read_reference()
    from cli.render.diagnosis import DiagnosisDisplay, print_diagnosis, print_verdicts

    diagnoses = []
    try:
        with DiagnosisDisplay(as_json) as display:
            lm = load_model(model, credentials=model_credentials(model))
            for figures in measure(lm, tools, texts, config, display):
                verdict = judge(figures, reference.tools.get(figures.tool))
                diagnoses.append((verdict, figures))
                if not as_json:
                    print_diagnosis(display.stdout, figures, verdict)
    except (KeyboardInterrupt, Terminated) as exc:
        print("stopped; nothing of a diagnosis is kept, the next one begins anew", file=sys.stderr)
        raise Exit(TERMINATED if isinstance(exc, Terminated) else 130) from None
    verdicts = [verdict for verdict, _ in diagnoses]
    if as_json:
        found = [{"verdict": verdict, "figures": figures} for verdict, figures in diagnoses]
        head = {"model": model, "texts": texts.digest, "documents": documents}
        print_json({**head, "tools": found, "reference": reference})
    else:
        print_verdicts(verdicts, comparable=reference.texts == texts.digest)
    if not all(verdict.teachable for verdict in verdicts):
        raise Exit(1)
