"""The plan of a build by numbers: plain arithmetic from named assumptions to tokens, hours and money of each stage.

    kept    = documents x kept_share            samples = kept x samples a document       ok = samples x ok_share
    calls   = ok x calls_per_ok_draw            scored  = ok x scored_per_ok_draw
    LM tokens of sample = kept x scan_tokens + samples x draw_tokens,   of score = scored x score_tokens

Each further depth of chained calls draws m calls of every tool after the smaller of CHAIN_STARTS and the calls that
were scored for a document. On a card a token of scan and scoring takes its FLOPs / (rate x mfu); a drawn token the
longer of that and of reading all weights once for decode_rows samples and a document's keys and values once for its
samples. The wall time is ingest, in one process, and then the longest of what the rest passes through: the cards, the
cores, each tool. Queues, stragglers, the platform's own work and storage come to little (docs/tried.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.resolve import sampling
from flows.cost.assumptions import CARDS, Assumption, Assumptions, examples_a_document, parse
from flows.cost.parameters import CostOptions
from flows.cost.sample import SampleBuild, read_sample
from flows.cost.shapes import config_of, shape_of
from flows.forms.chosen_tools import chosen_tools
from tasks.shards.stage import at_depth
from toolformer_core.config import CHAIN_STARTS, SampleConfig, tau_f_for
from toolformer_core.errors import UnknownNameError, UsageError

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage costs for one tool, or for all of them."""

    stage: str
    tool: str  # "" where the stage runs once for all tools
    units: float  # documents, calls of the tool or scored calls: what the stage works on
    lm_tokens: float = 0.0
    gpu_hours: float = 0.0  # of one card, at work
    tool_calls: float = 0.0
    tool_hours: float = 0.0  # of calls, one after another
    cpu_hours: float = 0.0  # of one core; with no card named, the model's work as well


@dataclass(frozen=True, slots=True)
class CostPlan:
    documents: float
    model: str
    where: str  # the cards or the cores
    stages: tuple[StageCost, ...]
    hours: Mapping[str, float]  # what the work after ingest passes through -> how long it takes, the longest first
    ingest_hours: float  # before all else, in one process
    wall_hours: float
    bottleneck: str  # the longest part of the wall time
    build_money: float  # cards and cores for the whole wall time, in the unit of the prices
    training: StageCost  # finetuning on C*: its texts, at most, and the tokens trained
    training_hours: float  # on the clock
    training_money: float
    assumptions: tuple[Assumption, ...]
    sample: str  # the build that was measured; "" without one

    def sum(self, figure: str) -> float:
        """Return the sum of a figure of `StageCost` over all stages."""
        return float(sum(getattr(stage, figure) for stage in self.stages))


def cost_of_build(p: BuildParameters, documents: float, costs: CostOptions) -> CostPlan:
    """Return what a build with these parameters, of which the corpus is not read, costs on a number of documents."""
    if costs.gpu and costs.gpu_price is None:
        raise UsageError("--gpu needs the price of an hour of one card, e.g. --gpu-price 2.5 (0: it costs nothing)")
    if not costs.gpu and (costs.gpu_price is not None or costs.gpu_count != 1):
        raise UsageError("--gpu-count and --gpu-price need a card: name it with --gpu, e.g. --gpu h100")
    return _Run(p, documents, costs, _sample_build(p, costs.from_)).plan()


def _sample_build(p: BuildParameters, given: str | None) -> SampleBuild | None:
    """Return the sample build: of the folder that was named, else of the parameters' own if one was completed there."""
    data = given or p.data
    try:
        found = read_sample(data) if "://" in data or Path(data).is_dir() else None
    except UsageError:  # begun and not ended
        if given is not None:
            raise
        return None
    if given is not None and found is None:
        raise UsageError(f"--from {given}: nothing was built there; name the data folder of a finished build")
    return found


class _Tool:
    def __init__(self, key: str, config: SampleConfig, tau_f: float, run: _Run) -> None:
        self.key, self.config, self.tau_f, self._run = key, config, tau_f, run
        self._measured: dict[str, float] = {}
        if run.sample is not None:
            same_samples = run.sample.sampled_alike(key, run.p.model, config.draw_form, run.p.decoys_of_a_call)
            self._measured = run.sample.rates(key, tau_f, run.single("draw_tokens"), same_samples)
        km = config.top_k * config.samples
        if (share := self._measured.pop("samples_of_km", None)) is not None:
            self._measured["samples"] = share * km  # in proportion, if the sample build had other k and m
        why = "a document kept: k x m, as if k positions exceeded tau_s"
        self.samples = self._own("samples", km, "samples", why, "config")
        copies = run.single("text_copies")
        why = f"a document kept: text_tokens x {copies:g} copies read x padding"
        self.scan_tokens = self._own("scan_tokens", run.text_tokens * copies * run.single("padding"), "tokens", why)

    def rate(self, name: str) -> float:
        """Return a figure that is a line of the plan from now on."""
        return self._run.lines.of_tool(self.key, name, self._measured.get(name), self._run.source)

    def _own(self, name: str, computed: float, unit: str, why: str, origin: str = "computed") -> float:
        if (measured := self._measured.get(name)) is not None:
            computed, origin, why = measured, "measured", self._run.source
        return self._run.add(f"{self.key}.{name}", computed, unit, origin, why)

    def examples(self) -> float:
        value, origin, source = examples_a_document(self.key, self.tau_f)
        return self._own("examples", value, "examples", source, origin)

    def score_tokens(self) -> float:
        """Return the tokens of a scored call; those of a document share its plain loss."""
        run = self._run
        with_a_call = run.single("call_tokens") + run.text_tokens / 2
        calls = max(1.0, self.samples * self.rate("ok_share") * self.rate("scored_per_ok_draw"))
        value = (2 + run.p.decoys_of_a_call) * with_a_call + run.text_tokens / calls
        why = "a scored call: e(c, r), e(c, eps) and decoys before half a text, and a share of the plain pass"
        return self._own("score_tokens", value * run.single("padding"), "tokens", why)

    def model_us(self, stage: str) -> float:
        value = 1e6 * self._run.flops(stage) / self._run.core_flops()
        return self._own(f"{stage}_model_us", value, "us CPU per token", "FLOPs of a token / (cpu_gflops x cpu_mfu)")


class _Run:
    def __init__(self, p: BuildParameters, documents: float, costs: CostOptions, sample: SampleBuild | None) -> None:
        self.p, self.documents, self.costs, self.sample = p, documents, costs, sample
        self.source = f"sample build: {sample.source}" if sample is not None else ""
        given = parse(costs.assume)
        self.lines = Assumptions(given)
        self.single = self.lines.single
        self.tflops = self.bandwidth = 0.0
        self.gpu = costs.gpu
        if gpu := costs.gpu:
            card = CARDS.get(gpu.lower())
            if card is None and not given.keys() >= {"tflops", "bandwidth"}:
                raise UnknownNameError("card", gpu, [*CARDS, "or another, with --assume tflops=...,bandwidth=..."])
            rate, memory_rate, source = card or (0.0, 0.0, f"of {gpu}")
            self.tflops = self.add("tflops", rate, "TFLOP/s bf16", "vendor", source)
            self.bandwidth = self.add("bandwidth", memory_rate, "GB/s", "vendor", source)
        self.shape = shape_of(config_of(p.model))
        tokens = self.single("characters") / self.single("characters_a_token")
        why, origin = "a document: characters / characters_a_token", "computed"
        same_model = sample is not None and sample.model == p.model
        if sample is not None and same_model and (measured := sample.text_tokens(self.single("draw_tokens"))):
            tokens, why, origin = measured, self.source, "measured"
        self.text_tokens = self.add("text_tokens", tokens, "tokens", origin, why)
        configs, tau_f = sampling(p, chosen_tools([*p.tools, *p.tool], p.passages, p.qa_reader, p.translator)[0])
        self.tools = [_Tool(key, config, tau_f_for(key, tau_f), self) for key, config in configs.items()]

    def add(self, name: str, value: float, unit: str, origin: str, source: str) -> float:
        return self.lines.add(Assumption(name, value, unit, origin, source))

    def plan(self) -> CostPlan:
        single, gpu_count = self.single, self.costs.gpu_count
        stages = tuple(self.stages())
        if self.gpu:
            number, origin, why = gpu_count * single("cores_per_gpu"), "computed", "gpu-count x cores_per_gpu"
        else:
            number, origin, why = self.p.workers, "config", "--workers, each with a core"
        cores = self.add("cores", number, "cores", origin, why)
        hours = {"cores": sum(cost.cpu_hours for cost in stages[1:]) / cores}
        if self.gpu:
            hours["cards"] = sum(cost.gpu_hours for cost in stages) / (gpu_count * single("gpu_busy_share"))
        for tool in self.tools:
            waited = sum(cost.tool_hours for cost in stages if cost.tool == tool.key)
            hours[f"tool {tool.key}"] = waited / (tool.rate("calls_at_once") * cores)
        ingest = stages[0].cpu_hours
        wall = ingest + max(hours.values())
        parts = {**hours, "ingest, in one process": ingest}
        training = self.training()
        gpu_price = self.add("gpu_price", self.costs.gpu_price or 0.0, "per card-hour", "given", "--gpu-price")
        cpu_price = single("cpu_price")
        self.lines.check()
        return CostPlan(
            documents=self.documents,
            model=self.p.model,
            where=f"{gpu_count} x {self.gpu}" if self.gpu else f"{self.p.workers} workers without a card",
            stages=stages,
            hours=dict(sorted(hours.items(), key=lambda one: -one[1])),
            ingest_hours=ingest,
            wall_hours=wall,
            bottleneck=max(parts, key=lambda name: parts[name]),
            build_money=wall * (gpu_price * gpu_count + cpu_price * cores),
            training=training,
            training_hours=training.gpu_hours / gpu_count if self.gpu else training.cpu_hours / self.p.workers,
            training_money=gpu_price * training.gpu_hours + cpu_price * training.cpu_hours,
            assumptions=tuple(self.lines.lines.values()),
            sample=self.sample.source if self.sample is not None else "",
        )

    def stages(self) -> Iterator[StageCost]:
        documents, single = self.documents, self.single
        yield StageCost("ingest", "", documents, cpu_hours=documents * single("ingest_ms") / 1000 / _HOUR)
        scored_a_document = 0.0
        for tool in self.tools:
            annotated, examples = documents, tool.examples()
            if self.p.stop_when_full and examples:
                annotated = min(documents, math.ceil(self.p.max_examples / examples))
            yield self._stage("prefilter", tool, annotated)
            yield from self._calls(tool, annotated * tool.rate("kept_share"), tool.samples, tool.scan_tokens)
            scored = tool.samples * tool.rate("ok_share") * tool.rate("scored_per_ok_draw")
            scored_a_document += tool.rate("kept_share") * scored
        for depth in range(2, self.p.chain_depth + 1):
            for tool in self.tools:
                dated = tool.rate("kept_share") if tool.key == "calendar" else 1.0  # it needs a date
                starts = documents * dated * min(CHAIN_STARTS, scored_a_document)
                # the text, half of it again and a call
                read = (1.5 * self.text_tokens + single("call_tokens")) * single("padding")
                yield from self._calls(tool, starts, tool.config.samples, read, depth)
        yield StageCost("assemble", "", documents, cpu_hours=documents * single("assemble_ms") / 1000 / _HOUR)

    def _calls(
        self, tool: _Tool, texts: float, samples_a_text: float, scan: float, depth: int = 1
    ) -> Iterator[StageCost]:
        samples = texts * samples_a_text
        ok = samples * tool.rate("ok_share")
        calls, scored = ok * tool.rate("calls_per_ok_draw"), ok * tool.rate("scored_per_ok_draw")
        decoded = samples * self.single("draw_tokens")
        yield self._stage("sample", tool, texts, texts * scan, decoded, samples_a_text, depth=depth)
        yield self._stage("execute", tool, calls, tool_calls=calls, depth=depth)
        yield self._stage("score", tool, scored, scored * tool.score_tokens(), depth=depth)

    def _stage(
        self,
        stage: str,
        tool: _Tool,
        units: float,
        prefill: float = 0.0,
        decode: float = 0.0,
        samples_a_text: float = 1.0,
        tool_calls: float = 0.0,
        depth: int = 1,
    ) -> StageCost:
        gpu_s, cpu_s = 0.0, units * tool.rate(f"{stage}_ms") / 1000
        if prefill and self.gpu:
            gpu_s = prefill * self.flops(stage) / (1e12 * self.tflops * self.single("mfu"))
            gpu_s += decode * self._drawn_token_s(samples_a_text) if decode else 0.0
        elif prefill:
            cpu_s += (prefill + decode) * tool.model_us(stage) / 1e6
        tool_s = tool_calls * tool.rate("call_seconds") if tool_calls else 0.0
        tokens, name = prefill + decode, at_depth(stage, depth)
        return StageCost(name, tool.key, units, tokens, gpu_s / _HOUR, tool_calls, tool_s / _HOUR, cpu_s / _HOUR)

    def flops(self, stage: str) -> float:
        """Return the FLOPs of a token that passes through the model with many others."""
        if stage == "score":  # it stands after a call in half a text; five tokens need the output layer
            return self.shape.flops_per_token((self.single("call_tokens") + self.text_tokens / 2) / 2, 0.0)
        copies = self.single("text_copies")  # after the prompt; the last one is searched
        preceding = self.single("prompt_tokens") + copies * self.text_tokens / 2
        return self.shape.flops_per_token(preceding, 1 / copies)

    def _drawn_token_s(self, samples_a_text: float) -> float:
        single, shape = self.single, self.shape
        scanned = single("text_copies") * self.text_tokens + single("prompt_tokens")
        compute = shape.flops_per_token(scanned) / (1e12 * self.tflops * single("mfu"))
        sharing = min(max(samples_a_text, 1.0), single("decode_rows"))
        read = shape.weight_bytes() / single("decode_rows") + shape.kv_bytes_per_token() * scanned / sharing
        return max(compute, read / (1e9 * self.bandwidth * single("bandwidth_share")))

    def training(self) -> StageCost:
        """Return what finetuning the planned model on the planned C* costs."""
        single = self.single
        texts = sum(min(self.p.max_examples, self.documents * tool.examples()) for tool in self.tools)
        length = single("sequence_length")
        text_tokens = min(length, self.text_tokens + single("call_tokens"))
        trained = single("steps") * single("batch") * text_tokens
        measurements = 1 + math.ceil(single("steps") / single("evaluate_every"))
        dev_tokens = measurements * single("dev_documents") * min(length, self.text_tokens)
        flops = self.shape.flops_per_token(text_tokens / 2) * (single("training_passes") * trained + dev_tokens)
        rate = 1e12 * self.tflops * single("training_mfu") if self.gpu else self.core_flops()
        hours = {"gpu_hours" if self.gpu else "cpu_hours": flops / rate / _HOUR}
        return StageCost("finetune", "", texts, trained, **hours)

    def core_flops(self) -> float:
        return 1e9 * self.single("cpu_gflops") * self.single("cpu_mfu")
