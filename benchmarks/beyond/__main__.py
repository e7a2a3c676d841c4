"""What the options beyond the paper buy, on the small world's texts, whose right calls are known.

    python -m benchmarks.beyond --seed 1 --part pretrain        # hours on two cores; resumes where it was stopped
    python -m benchmarks.beyond --seed 1 --part calibration     # promised against true rate of false discoveries
    python -m benchmarks.beyond --seed 1 --part sampling        # free against forced form; which positions are found
    python -m benchmarks.beyond --seed 1 --part trained         # thresholds, prices and triggers, after finetuning
    python -m benchmarks.beyond --seed 1 --part rounds          # rounds of self-teaching
    python -m benchmarks.beyond --seed 1 --part chains          # chained calls, with a further leg of the shipped model
    python -m benchmarks.beyond --part report                   # docs/beyond.md and its plots, anew

A seed is that of a pretrained model; `shipped` is the one that comes with the platform (for `chains` a seed is that of
the further leg). Every part adds its figures to docs/beyond.json, and the report is written from all that are there. A
part that was stopped begins anew, but for `pretrain`, `trained`, `rounds` and `chains`, which go on after the last step
that they finished. The sizes that are not given are those of the part.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.beyond.annotated import frame_texts
from benchmarks.beyond.calibration import calibration
from benchmarks.beyond.chained import ChainSizes, chained, leg
from benchmarks.beyond.report import write_report
from benchmarks.beyond.rounds import RoundSizes, rounds
from benchmarks.beyond.sampling import sampling
from benchmarks.beyond.trained import Sizes, trained
from benchmarks.report import parser_of, print_json, progress
from benchmarks.small_world import pretrained
from toolformer_core.lm.load import load_model

PARTS = ("pretrain", "calibration", "sampling", "trained", "rounds", "chains", "report")
_SHIPPED = "shipped"
Some = TypeVar("Some", Sizes, ChainSizes, RoundSizes)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seed", default=_SHIPPED, help="of the pretrained model, or shipped (default)")
    parser.add_argument("--part", choices=PARTS, default="report")
    parser.add_argument("--work", type=Path, default=Path("beyond-runs"), help="where models and runs lie")
    parser.add_argument("--tokens", type=int, default=12_000_000, help="of pretraining")
    parser.add_argument("--documents", type=int, default=160, help="calibration, sampling: for every tool and frames")
    parser.add_argument("--corpus", type=int, help="trained, rounds, chains: documents to annotate")
    parser.add_argument("--items", type=int, help="trained, rounds: items for each tool; chains: of each family")
    parser.add_argument("--steps", type=int, help="trained, rounds, chains: steps of three texts")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of beyond.json, beyond.md and images")
    a = parser.parse_args()
    path = a.out / "beyond.json"
    a.out.mkdir(parents=True, exist_ok=True)  # before hours of work
    if a.part != "report":
        folder = a.work / (a.seed if a.seed == _SHIPPED else f"seed-{int(a.seed)}")
        folder.mkdir(parents=True, exist_ok=True)
        if a.part == "chains":
            if a.seed == _SHIPPED:
                parser.error("--part chains needs the --seed of a leg: 1, 2, ...")
            sizes = _sizes(a, ChainSizes())
            found = chained(_own(folder, a.part, sizes), leg(a.work, int(a.seed)).resolve(), sizes, progress)
            _add(path, (a.part, a.seed), found)
            return _report(path, a)
        model = "embedded" if a.seed == _SHIPPED else str(pretrained(folder, int(a.seed), a.tokens).resolve())
        if a.part == "pretrain":
            return
        measured = _part(a, folder, model)
        _add(path, (a.part, a.seed) if a.part == "rounds" else (a.seed, a.part), measured)
    _report(path, a)


def _add(path: Path, keys: tuple[str, str], measured: dict[str, Any]) -> None:
    """Add the figures of a part; those of rounds and chains are found by the part, all others by the seed."""
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
    if a.part == "trained":
        sizes = _sizes(a, Sizes())
        return trained(_own(folder, a.part, sizes), model, sizes, progress)
    if a.part == "rounds":
        of_rounds = _sizes(a, RoundSizes())
        return rounds(_own(folder, a.part, of_rounds), model, of_rounds, progress)
    measure = calibration if a.part == "calibration" else sampling
    texts = frame_texts(a.work / "texts", a.documents)
    return {"documents": a.documents, **measure(load_model(model), texts, progress)}


def _sizes(a: Any, usual: Some) -> Some:
    """Return a part's sizes with those that were given."""
    given = {"documents": a.corpus, "items": a.items, "steps": a.steps}
    return replace(usual, **{name: value for name, value in given.items() if value is not None})


def _own(folder: Path, part: str, sizes: Sizes | ChainSizes | RoundSizes) -> Path:
    """Return where a part's work lies: other sizes are other work."""
    return folder.resolve() / f"{part}-{sizes.documents}-{sizes.items}-{sizes.steps}"


if __name__ == "__main__":
    main()
