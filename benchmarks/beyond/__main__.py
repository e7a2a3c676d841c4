"""What the options beyond the paper buy, on the small world's texts, whose right calls are known.

    python -m benchmarks.beyond --seed 1 --part pretrain        # hours on two cores; resumes where it was stopped
    python -m benchmarks.beyond --seed 1 --part calibration     # promised against true rate of false discoveries
    python -m benchmarks.beyond --seed 1 --part sampling        # free against forced form; which positions are found
    python -m benchmarks.beyond --seed 1 --part wordings        # each wording of the annotation prompts
    python -m benchmarks.beyond --seed 1 --part trained         # thresholds, prices and triggers, after finetuning
    python -m benchmarks.beyond --seed leg-1 --part chains      # chained calls; the shipped model has read none
    python -m benchmarks.beyond --part report                   # docs/beyond.md and its plots, anew

A seed is that of a pretrained model; `shipped` is the one that comes with the platform. `leg-1`, `leg-2`, ... are the
shipped one after a further leg of pretraining, each with texts of its own: half an hour instead of the hours that a
model from scratch takes. Every part adds its figures to docs/beyond.json, and the report is written from all that are
there. A part that was stopped begins anew, but for `pretrain` and those with sizes of their own (below), which go on
after the last step that they finished. The sizes that are not given are those of the part.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.beyond import chained as chained_part
from benchmarks.beyond.annotated import frame_texts
from benchmarks.beyond.calibration import calibration
from benchmarks.beyond.chained import chained
from benchmarks.beyond.report import write_report
from benchmarks.beyond.sampling import sampling
from benchmarks.beyond.trained import Sizes, trained
from benchmarks.beyond.wordings import wordings
from benchmarks.report import parser_of, print_json, progress
from benchmarks.small_world import leg, pretrained
from toolformer_core.lm.load import load_model

PARTS = ("pretrain", "calibration", "sampling", "wordings", "trained", "chains", "report")
OVER_SEEDS = ("chains",)  # their figures lie under the part's name in beyond.json
_SHIPPED, _LEG = "shipped", "leg-"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seed", default=_SHIPPED, help="of the pretrained model; leg-N, or shipped (default)")
    parser.add_argument("--part", choices=PARTS, default="report")
    parser.add_argument("--work", type=Path, default=Path("beyond-runs"), help="where models and runs lie")
    parser.add_argument("--tokens", type=int, default=12_000_000, help="of pretraining")
    parser.add_argument("--documents", type=int, help="calibration, sampling, wordings: for every tool and frames")
    parser.add_argument("--corpus", type=int, help="trained, chains: documents to annotate")
    parser.add_argument("--items", type=int, help="trained: items for each tool; chains: of each family")
    parser.add_argument("--steps", type=int, help="trained, chains: steps of three texts")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of beyond.json, beyond.md and images")
    a = parser.parse_args()
    path = a.out / "beyond.json"
    a.out.mkdir(parents=True, exist_ok=True)  # before hours of work
    if a.part != "report":
        if a.part == "chains" and not a.seed.startswith(_LEG):
            parser.error("--part chains needs a --seed leg-1, leg-2, ...: other models have read no chains")
        folder = a.work / (a.seed if a.seed.startswith((_SHIPPED, _LEG)) else f"seed-{int(a.seed)}")
        folder.mkdir(parents=True, exist_ok=True)
        model = _model(a, folder)
        if a.part == "pretrain":
            return
        measured = _part(a, folder, model)
        _add(path, (a.part, a.seed) if a.part in OVER_SEEDS else (a.seed, a.part), measured)
    _report(path, a)


def _model(a: Any, folder: Path) -> str:
    """Return the model of a seed: its name or its folder, trained now if it is not there."""
    if a.seed == _SHIPPED:
        return "embedded"
    if a.seed.startswith(_LEG):
        return str(leg(folder, int(a.seed.removeprefix(_LEG))).resolve())
    return str(pretrained(folder, int(a.seed), a.tokens).resolve())


def _add(path: Path, keys: tuple[str, str], measured: dict[str, Any]) -> None:
    """Add the figures of a part; those of chains are found by the part, all others by the seed."""
    figures = _figures(path)  # read now: another part may have ended meanwhile
    figures.setdefault(keys[0], {})[keys[1]] = measured
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _report(path: Path, a: Any) -> None:
    figures = _figures(path)
    write_report(figures, a.out)
    if a.json:
        print_json(figures)


def _figures(path: Path) -> dict[str, Any]:
    """Return all figures so far."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _part(a: Any, folder: Path, model: str) -> dict[str, Any]:
    """Return the figures of one part."""
    by_steps = {
        "trained": (trained, Sizes()),
        "chains": (chained, chained_part.USUAL),
    }
    if a.part in by_steps:
        measured, usual = by_steps[a.part]
        sizes = _sizes(a, usual)
        return measured(_own(folder, a.part, sizes), model, sizes, progress)
    in_process = {"calibration": (calibration, 160), "sampling": (sampling, 160), "wordings": (wordings, 24)}
    measure, usual_documents = in_process[a.part]
    documents = usual_documents if a.documents is None else a.documents
    texts = frame_texts(folder / f"texts-{documents}", documents)  # its own: parts of other seeds may be running
    return {"documents": documents, **measure(load_model(model), texts, progress)}


def _sizes(a: Any, usual: Sizes) -> Sizes:
    """Return a part's sizes with those that were given."""
    given = {"documents": a.corpus, "items": a.items, "steps": a.steps}
    return replace(usual, **{name: value for name, value in given.items() if value is not None})


def _own(folder: Path, part: str, sizes: Sizes) -> Path:
    """Return where a part's work lies: other sizes are other work."""
    return folder.resolve() / f"{part}-{sizes.documents}-{sizes.items}-{sizes.steps}"


if __name__ == "__main__":
    main()
