"""Write docs/beyond.md and its pictures from the figures of all seeds that were measured. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.beyond.calibration import PROMISES
from benchmarks.beyond.further_report import chains_chapter
from benchmarks.beyond.plots import Curve, plot_calibration, plot_curves
from benchmarks.beyond.pooled import Share, accuracy_of, answers_of, each, needless_of, of_part, right_share, summed
from benchmarks.beyond.sampling import PLACES
from benchmarks.small_world import spread, table
from toolformer_core.config import POSITIONS, TOOL_NAMES

__all__ = ["write_report"]

_FRAMES = ("known", "new")


def write_report(figures: Mapping[str, Any], out: Path) -> None:
    """Write `beyond.md` and `images/beyond-*.svg`; a part that no seed has is left out.

    Args:
        figures: seed -> part -> what the part returned; of chains: part -> seed.
        out: the folder of the documentation.
    """
    parts = [
        "# Beyond the paper, measured",
        "Written by `python -m benchmarks.beyond --part report` (`make beyond-report SEED=n PART=p` measures a part "
        "first). The texts are the small world's, whose right calls are known; *known* frames occur in the models' "
        "pretraining, *new* ones only in the world that is measured. A seed is that of a pretrained model; `shipped` "
        "is the model that comes with the platform, and a leg is that model after further pretraining. "
        "Counts are of all seeds together, with Wilson's 95 % interval; "
        "where seeds are compared, the mean stands first, then the least and the largest.",
    ]
    chapters = {"calibration": _calibration, "sampling": _sampling, "wordings": _wordings, "trained": _trained}
    for part, write in chapters.items():
        if seeds := of_part(figures, part):
            parts += write(seeds, out)
    if figures.get("chains"):
        parts += chains_chapter(figures["chains"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "beyond.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _seeds(seeds: Mapping[str, Any]) -> str:
    return f"Models: {', '.join(seeds)}."


def _measured(seeds: Mapping[str, Any], part: str) -> str:
    """Say which models were measured how, and on how many documents for each tool and kind of frames."""
    sizes = " and ".join(map(str, sorted(set(each(seeds, "documents")))))
    return (
        f"{_seeds(seeds)} Measured by `python -m benchmarks.beyond --part {part} --documents {sizes}`, so many for "
        "each tool and kind of frames."
    )


# --- calibration ------------------------------------------------------------------------------------------------------


def _calibration(seeds: Mapping[str, Any], out: Path) -> list[str]:
    rates: dict[str, dict[str, dict[float, Share | None]]] = {}
    lines, missed = [], []
    for frames in _FRAMES:
        for tool in TOOL_NAMES:
            gold = sum(each(seeds, frames, tool, "gold"))
            lines.append([frames, tool, "paper's", *_row(seeds, (frames, tool, "paper"), gold), ""])
            for promise in PROMISES:
                path = (frames, tool, "promised", str(promise))
                share = _wrong(summed(each(seeds, *path)))
                rates.setdefault(frames, {}).setdefault(tool, {})[promise] = share
                reasons = [one["reason"] for one in each(seeds, *path)]
                holds = share is None or share.low <= promise
                lines.append([frames, tool, str(promise), *_row(seeds, path, gold), _holds(holds, reasons)])
                if share and not holds:
                    partly = summed(each(seeds, *path))["partly"]
                    missed.append(f"{tool}, {frames}, {promise} ({partly} of {share.part:.0f} wrong ones tell a part)")
    plot_calibration(out / "images/beyond-calibration.svg", rates)
    head = ["frames", "tool", "promised", "tau_f", "kept", "wrong, share of the kept", "recall", "promise"]
    wrong = [[tool, *_all_wrong(seeds, tool)] for tool in TOOL_NAMES]
    return [
        "## A promised rate of wrong calls",
        f"{_measured(seeds, 'calibration')} Five positions, five draws and three "
        "decoys. *Wrong*: neither the input nor the response of a call that is right in the document, and no response "
        "that holds a right value; the interval counts a document once. *Recall*: right calls found at their place.",
        "![True over promised rates](images/beyond-calibration.svg)",
        "\n".join(table(head, lines)),
        "Where the promise is broken beyond its interval (*a part*: the response is a part of the right value): "
        + ("; ".join(missed) if missed else "nowhere")
        + ".",
        "Were all calls wrong (each has the response of another document), a promise of 0.05 would keep:",
        "\n".join(table(["tool", "calls", "kept", "of them where nothing could be promised"], wrong)),
    ]


def _wrong(row: Mapping[str, Any]) -> Share | None:
    return Share.of(row["wrong"], row["kept"], row["documents"])


def _row(seeds: Mapping[str, Any], path: tuple[str, ...], gold: int) -> list[str]:
    row = summed(each(seeds, *path))
    share = _wrong(row)
    recall = row["found"] / gold if gold else 0.0
    return [
        spread(one["tau_f"] for one in each(seeds, *path)),
        str(row["kept"]),
        share.said() if share else "-",
        f"{recall:.2f}",
    ]


def _holds(holds: bool, reasons: Iterable[str]) -> str:
    given = sorted({reason for reason in reasons if reason})
    return ("holds" if holds else "**broken**") + (f" ({', '.join(given)})" if given else "")


def _all_wrong(seeds: Mapping[str, Any], tool: str) -> list[str]:
    rows = [row for frames in _FRAMES for row in each(seeds, frames, tool, "all_wrong")]
    kept = [(row["kept"], row["reason"] not in ("", "none_passes")) for row in rows]
    return [str(sum(row["calls"] for row in rows)), str(sum(k for k, _ in kept)), str(sum(k for k, own in kept if own))]


# --- sampling ---------------------------------------------------------------------------------------------------------


def _sampling(seeds: Mapping[str, Any], _: Path) -> list[str]:
    forms, places = [], []
    for frames in _FRAMES:
        for tool in TOOL_NAMES:
            free, forced = (summed(each(seeds, frames, tool, "forms", form)) for form in ("free", "forced"))
            per_million = [1e6 * of["right"] / of["tokens"] for of in (free, forced)]
            ratio, candidates = _ratio(*per_million), _ratio(free["scored"], forced["scored"])
            shares = [Share.of(of["right"], of["kept"], of["documents"]) for of in (free, forced)]
            said = [share.said(2) if share else "-" for share in shares]
            forms.append([frames, tool, *(f"{m:.0f}" for m in per_million), ratio, candidates, *said])
            gold = sum(each(seeds, frames, tool, "gold"))
            for way in POSITIONS:
                found = summed(each(seeds, frames, tool, "places", way))
                places.append([frames, tool, way, *(f"{found[str(k)] / gold:.2f}" for k in PLACES)])
    head = ["frames", "tool", "free", "forced", "forced / free", "calls scored", "right of kept, free", "forced"]
    return [
        "## Forced form",
        f"{_measured(seeds, 'sampling')} Right kept calls for a million "
        "tokens through the model (scan, draws and scores together), "
        "at the paper's thresholds, and the share of kept calls that are right. *Calls scored*, forced over free: "
        "the forced form can win only where it makes more calls to score, and hardly does where a model writes "
        "well-formed calls anyway.",
        "\n".join(table(head, forms)),
        "## Positions",
        "Share of the known positions among the k best of their document.",
        "\n".join(table(["frames", "tool", "ranked by", *(f"k = {k}" for k in PLACES)], places)),
    ]


def _ratio(before: float, after: float) -> str:
    return f"{after / before:.2f}" if before else "-"


# --- wordings ---------------------------------------------------------------------------------------------------------


def _wordings(seeds: Mapping[str, Any], _: Path) -> list[str]:
    lines = []
    for tool in TOOL_NAMES:
        for wording in next(each(seeds, _FRAMES[0], tool)):
            of = {frames: list(each(seeds, frames, tool, wording)) for frames in _FRAMES}
            total = {frames: summed(one) for frames, one in of.items()}
            cells = [
                *(_both(_mean(of[f], name) for f in _FRAMES) for name in ("well_formed", "executes", "equals_gold")),
                " / ".join(str(total[f]["kept"]) for f in _FRAMES),
                _both(total[f]["right"] / total[f]["kept"] if total[f]["kept"] else None for f in _FRAMES),
                _both(_mean(of[f], "recall") for f in _FRAMES),
            ]
            lines.append([tool, wording, *cells])
    head = ["tool", "wording", "well formed", "executes", "equals gold", "kept", "precision", "recall"]
    return [
        "## Wordings of the annotation prompts",
        f"{_measured(seeds, 'wordings')} *Well formed* and *equals gold* are shares of the draws at "
        "known places, *executes* is that of the inputs drawn anywhere; *precision* is the share of kept calls with "
        "the known input at their place, *recall* that of known places where a call as good was kept. Known / new "
        "frames; kept calls of all models and their precision, means of the models otherwise.",
        "\n".join(table(head, lines)),
    ]


def _mean(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) / len(values) if values else None


def _both(values: Iterable[float | None]) -> str:
    return " / ".join("-" if value is None else f"{value:.2f}" for value in values)


# --- trained ----------------------------------------------------------------------------------------------------------


def _trained(seeds: Mapping[str, Any], out: Path) -> list[str]:
    sizes = next(each(seeds, "sizes"))
    answers, triggers, prices = [], [], []
    for name in ("paper", "fdr"):
        arms = [("k = 1", "asked", "toolformer", 1), ("k = 10", "asked", "toolformer", 10)]
        arms += [
            ("k = 10, fitted", "triggered", "toolformer-trigger", 10),
            ("disabled", "asked", "toolformer-disabled", 0),
        ]
        for label, of, arm, k in arms:
            line = [name, label]
            for new in (False, True):
                line.append(spread((accuracy_of(one["cstar"][name][of], arm, k, new) for one in seeds.values()), 1))
            line.append(spread((needless_of(one["cstar"][name][of], arm, k) for one in seeds.values()), 1))
            line.append(spread(one["cstar"][name]["perplexity"] for one in seeds.values()) if not k else "")
            answers.append(line)
        for new in (False, True):
            for tool in TOOL_NAMES:
                cells = [_cell(seeds, name, of, arm, k, new, tool) for _, of, arm, k in arms]
                triggers.append([name, "new" if new else "known", tool, *cells])
    curves: dict[str, Curve] = {"price in C*": [], "threshold on p(' [')": []}
    for name in sorted((n for n in next(each(seeds, "cstar")) if n.startswith("price")), key=_price):
        prices.append(_priced(seeds, name, curves["price in C*"]))
    unpriced = [one["cstar"]["paper"]["asked"] for one in seeds.values()]
    first = _point(unpriced, "toolformer", 10)
    curves["price in C*"].insert(0, (first[1], first[0], "0"))
    curves["threshold on p(' [')"].append((first[1], first[0], ""))
    thresholds = []
    for p in next(each(seeds, "curve")):
        right, calls, needless = _point([one["curve"][p] for one in seeds.values()], "toolformer-trigger", 10)
        thresholds.append([p, f"{right:.1f}", f"{calls:.1f}", f"{needless:.1f}"])
        curves["threshold on p(' [')"].append((calls, right, p))
    plot_curves(
        out / "images/beyond-calls.svg",
        curves,
        "items on which a tool is called, % (needless ones included)",
        "answered right, %",
    )
    kept = [
        [name, *(spread((one["cstar"][name]["kept"].get(tool, 0) for one in seeds.values()), 0) for tool in TOOL_NAMES)]
        for name in next(each(seeds, "cstar"))
    ]
    return [
        "## Finetuned on C* by a promised rate, and by the paper's thresholds",
        f"{_seeds(seeds)} {sizes['documents']} documents, {sizes['steps']} steps of three texts, {sizes['items']} "
        "items for each tool, half of them with new frames, and as many that need none. Percent.",
        "\n".join(
            table(["C*", "calls", "right, known", "right, new", "needless calls", "perplexity of new texts"], answers)
        ),
        "By tool, all seeds together:",
        "\n".join(table(["C*", "frames", "tool", "k = 1", "k = 10", "k = 10, fitted", "disabled"], triggers)),
        "Examples in C* with a call of the tool:",
        "\n".join(table(["C*", *TOOL_NAMES], kept)),
        "## What fewer calls cost",
        "![Accuracy over calls](images/beyond-calls.svg)",
        "*Calls*: of all items, also those that need none, the share on which a tool is called. Hardly an item that "
        "needs a tool is answered without one, so a call that leads to a right answer cannot go: for one point, "
        f"at most {_spare(unpriced, 'toolformer', 10):.0f} % of the calls could be spared.",
        "A price in nats for every call when C* is assembled; the model finetuned on it, k = 10:",
        "\n".join(
            table(
                ["price", "right", "calls", "needless calls", "fewer calls than without"],
                [_priced_line("0", first, first), *prices],
            )
        ),
        'One threshold on p(" [") for all tools, the model of the paper\'s C*, k = 10:',
        "\n".join(table(['p(" [") at least', "right", "calls", "needless calls"], thresholds)),
    ]


def _cell(seeds: Mapping[str, Any], name: str, of: str, arm: str, k: int, new: bool, tool: str) -> str:
    share = right_share((one["cstar"][name][of] for one in seeds.values()), arm, k, new, tool)
    return share.percent() if share else "-"


def _point(asked: list[Mapping[str, Any]], arm: str, k: int) -> tuple[float, float, float]:
    """Return percent right, percent of all items with a call (also of those that need none), and of these alone."""
    row, plain = _counts(asked, arm, k)
    calls = 100 * (row["called"] + plain["called"]) / (row["items"] + plain["items"])
    return 100 * row["right"] / row["items"], calls, 100 * plain["called"] / plain["items"]


def _spare(asked: list[Mapping[str, Any]], arm: str, k: int) -> float:
    """Return the percent of calls that could at most go for one point, where a right answer needs its call."""
    row, plain = _counts(asked, arm, k)
    return 100 * (1 - (row["right"] - row["items"] / 100) / (row["called"] + plain["called"]))


def _counts(asked: list[Mapping[str, Any]], arm: str, k: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return items, right ones and those with a call, of those that need a tool, and of those that need none."""
    row = summed(
        {"right": row["right"], "items": row["items"], "called": row["called"]}
        for one in asked
        for row in answers_of(one, arm, k)
    )
    return row, summed(one["needless"][f"{arm} {k}"] for one in asked)


def _price(name: str) -> float:
    return float(name.removeprefix("price-"))


def _priced(seeds: Mapping[str, Any], name: str, curve: Curve) -> list[str]:
    before = _point([one["cstar"]["paper"]["asked"] for one in seeds.values()], "toolformer", 10)
    after = _point([one["cstar"][name]["asked"] for one in seeds.values()], "toolformer", 10)
    curve.append((after[1], after[0], f"{_price(name):g}"))
    return _priced_line(f"{_price(name):g}", after, before)


def _priced_line(price: str, at: tuple[float, float, float], before: tuple[float, float, float]) -> list[str]:
    return [price, *(f"{value:.1f}" for value in at), f"{100 * (1 - at[1] / before[1]):.0f} %" if before[1] else "-"]
