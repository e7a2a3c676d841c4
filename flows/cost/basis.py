"""The figures that a plan computes with: what was given, else what a sample build measured, else the paper's and ours.

Each of them becomes a line of the plan's assumptions. How much work and money follows from them is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flows.cost.assumptions import ASSUMED, COMPUTED, CONFIG, MEASURED, SHARE, VENDOR, Assumptions
from flows.cost.cards import CARDS
from flows.cost.defaults import KEPT, RATES, SINGLE, per_document_examples
from flows.cost.query import CostQuery, ToolQuery
from flows.cost.sample import UNITS, MeasuredTool, Sample
from flows.cost.shapes import KNOWN_TYPES, ModelShape, characters_a_token, config_of, shape_of
from toolformer_core.annotate.sample import scans_of
from toolformer_core.errors import ModelError, UnknownNameError

__all__ = ["Basis", "ToolBasis", "basis_of"]

# Figures of the whole run by which others are divided: they must be positive.
_DIVISORS = (
    "bandwidth_share",
    "characters_a_token",
    "cpu_gflops",
    "cpu_mfu",
    "decode_rows",
    "gets_per_second",
    "gpu_busy_share",
    "mfu",
    "padding",
    "puts_per_second",
    "text_copies",
)


@dataclass(frozen=True, slots=True)
class ToolBasis:
    """A tool's rates. A document kept is one in which calls are sampled."""

    key: str
    kept_share: float  # of the corpus
    draws: float  # per document kept
    ok_share: float  # of draws
    calls: float  # of the tool, per draw that is a call
    scored: float  # calls, per draw that is a call
    examples: float  # of C*, per document of the corpus
    scan_tokens: float  # per document kept
    draw_tokens: float  # per draw
    start_tokens: float  # per start of a chain; 0: there are no chains
    score_tokens: float  # per scored call
    relevance_tokens: float  # per document of the prefilter; 0: none is left out
    call_seconds: float
    calls_at_once: float
    cpu_ms: dict[str, float]  # stage -> per unit of its work, without the model
    bytes: dict[str, float]  # stage -> per unit of its work
    model_us: dict[str, float]  # stage -> CPU microseconds per LM token, where no card is named


@dataclass(frozen=True, slots=True)
class Basis:
    """All figures of a plan."""

    query: CostQuery
    assumptions: Assumptions
    shape: ModelShape
    tools: tuple[ToolBasis, ...]
    text_tokens: float  # of a document
    tflops: float  # of the card, bf16, dense; 0 without one
    bandwidth: float  # of the card, GB/s; 0 without one
    memory: float  # of the card, GB; 0 without one
    sample: Sample | None

    def single(self, name: str) -> float:
        """Return a figure of which there is one for the whole run; it is a line of the plan from now on."""
        line = SINGLE[name]
        value, origin, source = _measured_single(self, name) or (line.value, line.origin, line.source)
        return self.assumptions.add(name, value, line.unit, origin, source, positive=name in _DIVISORS)

    def attention(self, stage: str) -> tuple[float, float]:
        """Describe the tokens of a stage that pass through the model many at a time.

        Returns:
            How many tokens one of them attends to, on average; for which share of them the output layer is computed.
        """
        if stage == "sample":  # behind the prompt the copies of the text, of which the last one is searched
            copies = self.single("text_copies")
            return self.single("prompt_tokens") + copies * self.text_tokens / 2, 1 / copies
        if stage == "score":  # a call and half a text; five tokens need the output layer
            return (self.single("call_tokens") + self.text_tokens / 2) / 2, 0.0
        return self.text_tokens / 2, 0.0  # a text is embedded


def basis_of(query: CostQuery, sample: Sample | None = None) -> Basis:
    """Collect the figures of a plan.

    Args:
        query: what is planned.
        sample: a finished build to measure from; None: there is none.

    Raises:
        UsageError: a value that was given is outside its bounds.
        ModelError: nothing is known of the model's shape.
        UnknownNameError: the card is not known, and not described either.
    """
    lines = Assumptions(query.assume)
    lines.allow(*SINGLE, *RATES)
    tflops, bandwidth, memory = _card(query, lines)
    shape = _shape(query, lines)
    basis = Basis(query, lines, shape, (), 0.0, tflops, bandwidth, memory, sample)
    basis = replace(basis, text_tokens=_text_tokens(basis))
    return replace(basis, tools=tuple(_tool(basis, tool, sample) for tool in query.tools))


def _card(query: CostQuery, lines: Assumptions) -> tuple[float, float, float]:
    """Return TFLOP/s, GB/s and GB of the card; zeros if none is named."""
    lines.allow("tflops", "bandwidth", "card_memory")
    if not query.gpu:
        return 0.0, 0.0, 0.0
    card = CARDS.get(query.gpu.lower())
    if card is None and not (lines.gives("tflops") and lines.gives("bandwidth")):
        raise UnknownNameError("card", query.gpu, [*CARDS, "or another, with --assume tflops=...,bandwidth=..."])
    source = card.source if card else f"of {query.gpu}"
    tflops = lines.add("tflops", card.tflops if card else 0, "TFLOP/s bf16", VENDOR, source, positive=True)
    bandwidth = lines.add("bandwidth", card.bandwidth if card else 0, "GB/s", VENDOR, source, positive=True)
    return tflops, bandwidth, lines.add("card_memory", card.memory if card else 0, "GB", VENDOR, source)


_SHAPE_NAMES = ("parameters", "layers", "hidden", "vocabulary")


def _shape(query: CostQuery, lines: Assumptions) -> ModelShape:
    """Return the model's shape, from its config.json or, if all four figures are given, from these alone."""
    try:
        config, source = config_of(query.model)
        shape = shape_of(config)
        if (kind := str(config.get("model_type"))) not in KNOWN_TYPES:
            source += f"; model_type {kind} is not known, and taken for one without a gated MLP"
    except ModelError:
        if not all(lines.gives(name) for name in _SHAPE_NAMES):
            raise
        shape, source = ModelShape(0, 0, 0, 0, 0, 0, 0), f"of {query.model}"
    figures = {
        name: lines.add(name, getattr(shape, name), unit, CONFIG, source, positive=True)
        for name, unit in zip(_SHAPE_NAMES, ("weights", "layers", "dimensions", "tokens"), strict=True)
    }
    if not any(lines.gives(name) for name in _SHAPE_NAMES):
        return shape
    hidden, vocabulary = int(figures["hidden"]), int(figures["vocabulary"])
    return ModelShape(
        parameters=int(figures["parameters"]),
        layers=int(figures["layers"]),
        hidden=hidden,
        vocabulary=vocabulary,
        kv_width=shape.kv_width if shape.hidden == hidden else hidden,
        matrix_parameters=max(1, int(figures["parameters"]) - 2 * hidden * vocabulary),
        context=shape.context,
    )


def _source(sample: Sample | None) -> str:
    return f"sample build: {sample.source}" if sample is not None else ""


def _measured_single(basis: Basis, name: str) -> tuple[float, str, str] | None:
    """Return a figure of the whole run as an option, a sample build or the tokenizer has it: value, origin, source."""
    if name == "characters_a_token":
        value = characters_a_token(basis.query.model)
        return None if value is None else (value, MEASURED, f"the tools' prompts in tokens of {basis.query.model}")
    stage, _, kind = name.partition("_")
    totals = basis.sample.of(stage) if basis.sample is not None and stage in ("ingest", "assemble") else None
    rows = max(totals.rows_in.get("documents", 0), totals.rows_in.get("rows", 0)) if totals is not None else 0
    if totals is None or not rows or kind not in ("ms", "bytes"):
        return None
    if kind == "bytes":
        return totals.bytes / rows, MEASURED, _source(basis.sample)
    fixed = (totals.commits if stage == "assemble" else 0) * basis.single("commit_cpu_ms")
    return max(0.0, 1000 * totals.own_cpu - fixed) / rows, MEASURED, _source(basis.sample)


def _text_tokens(basis: Basis) -> float:
    """Return the tokens of a document: of a sample build's scans, else from its characters."""
    lines = basis.assumptions
    scans = [
        (
            totals.scanned_tokens(_draw_tokens(lines, tool)) / _text_copies(basis, totals.positions, totals.wordings),
            totals.rows_in.get("documents", 0),
        )
        for (stage, tool), totals in (basis.sample.totals if basis.sample is not None else {}).items()
        if stage == "sample" and totals.lm_tokens
    ]
    if documents := sum(count for _, count in scans):
        tokens = sum(tokens for tokens, _ in scans) / documents / basis.single("padding")
        tokens *= _tokens_ratio(basis)
        source = f"a document: scanned tokens / (text_copies x padding); {_source(basis.sample)}"
        return lines.add("text_tokens", tokens, "tokens", MEASURED, source, positive=True)
    tokens = basis.single("characters") / basis.single("characters_a_token")
    source = "a document: characters / characters_a_token"
    return lines.add("text_tokens", tokens, "tokens", COMPUTED, source, positive=True)


def _text_copies(basis: Basis, positions: str, wordings: int) -> float:
    """Return how often sampling reads a text: in every scan, and once more where its plain loss is needed."""
    return basis.single("text_copies") * scans_of(wordings) + (positions != "trigger")


def _draw_tokens(lines: Assumptions, tool: str) -> float:
    return lines.add_for(tool, "draw_tokens", None, "", RATES["draw_tokens"])


def _is_model_of_sample(basis: Basis) -> bool:
    return basis.sample is not None and basis.sample.model == basis.query.model


def _tokens_ratio(basis: Basis) -> float:
    """Return how many times the tokens of a sample build's model the planned model makes of a text."""
    if basis.sample is None or _is_model_of_sample(basis):
        return 1.0
    default = SINGLE["characters_a_token"].value
    before, after = (characters_a_token(model) or default for model in (basis.sample.model, basis.query.model))
    source = f"the tools' prompts in tokens of {basis.query.model}, divided by those of {basis.sample.model}"
    return basis.assumptions.add("tokens_ratio", before / after, "times", COMPUTED, source, positive=True)


def _tool(basis: Basis, tool: ToolQuery, sample: Sample | None) -> ToolBasis:
    """Return a tool's rates: given, measured for this tool, or those that all tools share."""
    lines, key = basis.assumptions, tool.key
    m = MeasuredTool(sample, key)
    source = _source(sample)

    def rate(name: str, measured: float | None = None) -> float:
        return lines.add_for(key, name, measured, source, RATES[name])

    def own(name: str, measured: float | None, unit: str, value: float, origin: str, why: str) -> float:
        if measured is not None:
            value, origin, why = measured, MEASURED, source
        return lines.add(f"{key}.{name}", value, unit, origin, why)

    kept = KEPT.get(key, (1.0, CONFIG, "a tool of your own is tried on every document unless it declares a filter"))
    examples = per_document_examples(key, tool.tau_f)
    km = tool.top_k * tool.draws
    all_draws = "a document kept: k x m, as if k positions exceeded tau_s"
    draws = own("draws", m.draws(km, basis.query.positions), "draws", km, CONFIG, all_draws)
    ok_share = rate("ok_share", m.ok_share(basis.query.draw_form))
    scored = rate("scored_per_ok_draw", m.per_ok_draw("score"))
    draw_tokens = _draw_tokens(lines, key)
    cpu_fixed, bytes_fixed = basis.single("commit_cpu_ms"), basis.single("file_bytes")
    stages = [stage for stage in UNITS if stage != "relevance" or basis.query.relevant_share is not None]
    return ToolBasis(
        key=key,
        kept_share=own("kept_share", m.kept_share("prefilter", "documents"), SHARE, *kept),
        draws=draws,
        ok_share=ok_share,
        calls=rate("calls_per_ok_draw", m.per_ok_draw("execute", "calls")),
        scored=scored,
        examples=own("examples", m.examples(tool.tau_f), "examples", *examples),
        scan_tokens=_scan_tokens(basis, tool, m, draw_tokens, source),
        draw_tokens=draw_tokens,
        start_tokens=_start_tokens(basis, key, m, draw_tokens, source),
        score_tokens=_score_tokens(basis, key, m, source, draws * ok_share * scored),
        relevance_tokens=_relevance_tokens(basis, key, m, source),
        call_seconds=rate("call_seconds", m.call_seconds()),
        calls_at_once=rate("calls_at_once"),
        cpu_ms={stage: rate(f"{stage}_ms", m.beyond(stage, lambda t: 1000 * t.own_cpu, cpu_fixed)) for stage in stages},
        bytes={stage: rate(f"{stage}_bytes", m.beyond(stage, lambda t: t.bytes, bytes_fixed)) for stage in stages},
        model_us={stage: _model_us(basis, key, stage, m, source) for stage in ("relevance", "sample", "score")}
        if not basis.query.gpu
        else {},
    )


def _scan_tokens(basis: Basis, tool: ToolQuery, m: MeasuredTool, draw_tokens: float, source: str) -> float:
    """Return the tokens of a document's scans: of a sample build's tokens what its draws leave, but at least half."""
    key, planned = tool.key, _text_copies(basis, basis.query.positions, tool.wordings)
    totals, documents = m.stage("sample"), m.units("sample")
    name = f"{key}.scan_tokens"
    if totals is not None and documents and totals.lm_tokens:
        copies = planned / _text_copies(basis, totals.positions, totals.wordings)
        scanned = totals.scanned_tokens(draw_tokens) * copies * _tokens_ratio(basis)
        why = f"its LM tokens less draws x draw_tokens; {source}"
        return basis.assumptions.add(name, scanned / documents, "tokens", MEASURED, why)
    value = basis.text_tokens * planned * basis.single("padding")
    copies_read = "text_copies" + (f" x {scans} scans" if (scans := scans_of(tool.wordings)) > 1 else "")
    copies_read = copies_read if basis.query.positions == "trigger" else f"({copies_read} + 1)"
    why = f"a document kept: text_tokens x {copies_read} x padding"
    return basis.assumptions.add(name, value, "tokens", COMPUTED, why)


def _start_tokens(basis: Basis, key: str, m: MeasuredTool, draw_tokens: float, source: str) -> float:
    """Return the tokens that are read behind a prompt before calls are drawn at a start: a text, and it half again."""
    if basis.query.chain_depth == 1:
        return 0.0
    name = f"{key}.start_tokens"
    totals = m.stage("sample_2")
    starts = totals.counters.get("starts", 0) if totals is not None else 0
    if totals is not None and starts:
        why = f"its LM tokens less draws x draw_tokens; {source}"
        value = totals.scanned_tokens(draw_tokens) / starts * _tokens_ratio(basis)
        return basis.assumptions.add(name, value, "tokens", MEASURED, why)
    value = (1.5 * basis.text_tokens + basis.single("call_tokens")) * basis.single("padding")
    why = "a start: the text, half of it again and a call, x padding"
    return basis.assumptions.add(name, value, "tokens", COMPUTED, why)


def _score_tokens(basis: Basis, key: str, m: MeasuredTool, source: str, calls: float) -> float:
    """Return the tokens of a scored call; `calls` are those of a document, which share its plain loss."""
    name = f"{key}.score_tokens"
    measured = m.per_unit("score", lambda totals: totals.lm_tokens)
    with_a_call = (basis.single("call_tokens") + basis.text_tokens / 2) * basis.single("padding")
    if measured:
        more = basis.query.decoys - (m.per_unit("score", lambda totals: totals.counters.get("decoys", 0)) or 0.0)
        why = source + (f"; {more:+.3g} decoys a call, each a call in front of half a text" if more else "")
        value = measured * _tokens_ratio(basis) + more * with_a_call
        return basis.assumptions.add(name, value, "tokens", MEASURED, why)
    plain = basis.text_tokens / max(1.0, calls) * basis.single("padding")
    value = (2 + basis.query.decoys) * with_a_call + plain
    why = "a scored call: e(c, r) and e(c, eps), each in front of half a text; a document's calls share a plain pass"
    why += f"; {basis.query.decoys:g} decoys" if basis.query.decoys else ""
    return basis.assumptions.add(name, value, "tokens", COMPUTED, why)


def _relevance_tokens(basis: Basis, key: str, m: MeasuredTool, source: str) -> float:
    if basis.query.relevant_share is None:
        return 0.0
    name = f"{key}.relevance_tokens"
    measured = m.per_unit("relevance", lambda totals: totals.lm_tokens)
    if measured is not None:
        return basis.assumptions.add(name, measured * _tokens_ratio(basis), "tokens", MEASURED, source)
    if basis.query.own_encoder:
        return basis.assumptions.add(name, 0.0, "tokens", ASSUMED, "--encoder embeds the texts; its work is left out")
    value = basis.text_tokens / len(basis.query.tools)
    return basis.assumptions.add(name, value, "tokens", COMPUTED, "a text is embedded once for all tools")


def _model_us(basis: Basis, key: str, stage: str, m: MeasuredTool, source: str) -> float:
    """Return the CPU microseconds of the model per token: measured, or from its FLOPs and the core's rate."""
    if stage == "relevance" and basis.query.relevant_share is None:
        return 0.0
    totals = m.stage(stage)
    name = f"{key}.{stage}_model_us"
    if totals is not None and totals.lm_tokens and totals.model_cpu and _is_model_of_sample(basis):
        value = 1e6 * totals.model_cpu / totals.lm_tokens
        return basis.assumptions.add(name, value, "us CPU per token", MEASURED, source)
    flops = basis.shape.flops_per_token(*basis.attention(stage))
    value = flops / (1e3 * basis.single("cpu_gflops") * basis.single("cpu_mfu"))
    why = "FLOPs of a token / (cpu_gflops x cpu_mfu)"
    return basis.assumptions.add(name, value, "us CPU per token", COMPUTED, why)
