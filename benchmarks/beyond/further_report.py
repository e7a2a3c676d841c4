"""The chapters of docs/beyond.md on rounds and on chains, from the figures of all seeds. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.beyond.pooled import Share, each, summed
from benchmarks.small_world import spread, table
from toolformer_core.config import TOOL_NAMES

__all__ = ["chains_chapter", "rounds_chapter"]

_ARMS = {
    ("chained", "toolformer 2"): "chains, two calls",
    ("chained", "toolformer 3"): "chains, three",
    ("chained", "toolformer 1"): "chains, one",
    ("single", "toolformer 2"): "single calls, two",
    ("single", "toolformer 3"): "single calls, three",
    ("single", "toolformer 1"): "single calls, one",
    ("chained", "toolformer-disabled 1"): "disabled",
}


def rounds_chapter(seeds: Mapping[str, Any], *, bare: bool = False) -> list[str]:
    """Return the chapter on rounds.

    Args:
        seeds: seed -> what `rounds.rounds` returned.
        bare: whether later rounds sampled without annotation prompts.
    """
    part = "bare-rounds" if bare else "rounds"
    title = "Rounds without prompts" if bare else "Rounds of self-teaching"
    how = ", without the annotation prompts" if bare else ""
    sizes = next(each(seeds, "sizes"))
    most = max(len(one["rounds"]) for one in seeds.values())
    lines, by_tool = [], []
    for number in range(most):
        of = [one["rounds"][number] for one in seeds.values() if len(one["rounds"]) > number]
        kept = [sum(one["kept"].values()) for one in of]
        lines.append(
            [
                str(number),
                str(len(of)),
                spread((100 * one["well_formed"] / one["draws"] for one in of), 1),
                spread((1000 * n / one["documents"] for n, one in zip(kept, of, strict=True)), 0),
                spread((1e6 * n / one["lm_tokens"] for n, one in zip(kept, of, strict=True)), 1),
                *(spread((_right(one, new) for one in of), 1) for new in (False, True)),
                spread((100 * one["needless"] for one in of), 1),
                spread(one["perplexity"] for one in of),
            ]
        )
        for tool in TOOL_NAMES:
            counts = {name: sum(one[name].get(tool, 0) for one in of) for name in ("kept", "right", "found", "gold")}
            precision, recall = Share.of(counts["right"], counts["kept"]), Share.of(counts["found"], counts["gold"])
            answers = summed(row for one in of for row in one["answers"] if row["tool"] == tool and row["new"])
            new = Share.of(answers.get("right", 0), answers.get("items", 0))
            by_tool.append(
                [
                    str(number),
                    tool,
                    str(counts["kept"]),
                    *(one.percent() if one else "-" for one in (precision, recall, new)),
                ]
            )
    head = ["round", "models", "well-formed draws", "kept calls per 1,000 documents", "per million LM tokens"]
    head += ["right, known", "right, new", "needless calls", "perplexity of new texts"]
    return [
        f"## {title}",
        f"Models: {', '.join(seeds)}. Measured by `python -m benchmarks.beyond --part {part}`: {sizes['documents']} "
        f"documents, {sizes['steps']} steps of three texts, {sizes['items']} items for each tool, k = 10. From round 1 "
        f"on the model of the round before samples{how}, and the pretrained one scores. Percent, but for kept calls "
        "and perplexity; the mean of the models, then the least and the largest:",
        "\n".join(table(head, lines)),
        "By tool, all models together. *Precision*: kept calls at a known place with the known input, or a response "
        "that holds the value there. *Recall*: known places with such a call.",
        "\n".join(table(["round", "tool", "kept", "precision", "recall", "right, new frames"], by_tool)),
    ]


def _right(one: Mapping[str, Any], new: bool) -> float:
    row = summed(row for row in one["answers"] if row["new"] == new)
    return float(100 * row["right"] / row["items"])


def chains_chapter(seeds: Mapping[str, Any]) -> list[str]:
    """Return the chapter on chains.

    Args:
        seeds: seed -> what `chained.chained` returned.
    """
    sizes = next(each(seeds, "sizes"))
    lines, kept = [], []
    rows = next(each(seeds, "chained", "answers", "toolformer 2"))
    for new in (False, True):
        for family in dict.fromkeys(row["family"] for row in rows):
            line = ["new" if new else "known", family]
            for name, arm in _ARMS:
                share = _share(
                    each(seeds, name, "answers", arm), lambda r, f=family, n=new: (r["family"], r["new"]) == (f, n)
                )
                line.append(share.percent() if share else "-")
            lines.append(line)
        line = ["new" if new else "known", "all"]
        for name, arm in _ARMS:
            line.append(spread((_percent(one[name]["answers"][arm], new) for one in seeds.values()), 1))
        lines.append(line)
    for group in next(each(seeds, "chained", "gold")):
        counts = summed(each(seeds, "chained", "gold", group))
        recall = Share.of(counts["found"], counts["gold"])
        precision = Share.of(counts["right"], counts["kept"]) if group == "all" else None
        cells = (str(counts["gold"]), precision.percent() if precision else "", recall.percent() if recall else "-")
        kept.append([group, str(counts["kept"]) if group == "all" else "", *cells])
    tokens = spread((one["chained"]["lm_tokens"] / one["single"]["lm_tokens"] for one in seeds.values()), 2)
    return [
        "## Chains",
        f"Models: {', '.join(seeds)}, each the shipped one after a leg of 1.5 M tokens of pretraining, in half of "
        "whose texts calls of invented tools go on from each other. Measured by "
        f"`python -m benchmarks.beyond --part chains`: {sizes['documents']} "
        f"documents, {sizes['steps']} steps of three texts, {sizes['items']} items of each family "
        "and kind of frames; each needs two tools. Percent answered right, k = 10, by what C* holds (chains and single "
        "calls, or single calls alone) and by the calls that an item may have at most; by family all models together, "
        "below that the mean of the models:",
        "\n".join(table(["frames", "family", *_ARMS.values()], lines)),
        "Chains in C* against those that are known. *Precision*: at a known place, with its tools, the last response "
        "holds the value. *Recall*: known places with such a chain.",
        "\n".join(table(["family and frames", "kept", "known places", "precision", "recall"], kept)),
        f"LM tokens of annotation, with chains over without: {tokens}.",
    ]


def _share(arms: Iterable[Sequence[Mapping[str, Any]]], wanted: Any) -> Share | None:
    total = summed({"right": row["right"], "items": row["items"]} for rows in arms for row in rows if wanted(row))
    return Share.of(total.get("right", 0), total.get("items", 0))


def _percent(rows: Sequence[Mapping[str, Any]], new: bool) -> float:
    total = summed({"right": row["right"], "items": row["items"]} for row in rows if row["new"] == new)
    return float(100 * total["right"] / total["items"])
