"""lm-evaluation-harness on models with tools: tasks from local files, calls by force, log-likelihoods the plain way."""

import dataclasses
import functools
import itertools
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance

from tests.core.decode.writers import after, writing_lm
from tests.fakes import FakeTool
from tests.tiny import TEXTS, tiny_lm, tokenizer
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.evaluate.harness import HarnessModel, settings_for
from toolformer_core.lm.hf.engine import TransformersLM

CLOSE = 1e-4  # largest difference of log-probabilities allowed in float32


T = functools.partial(FakeTool, name="T")


def follows(*chains: str, **more: int) -> TransformersLM:
    """A model that goes from each token of a chain to the next; one that begins with "!" begins behind a "!"."""
    coded = tokenizer()
    ids = [after(coded, chain) for chain in chains]
    edges = [([a], [b]) for chain in ids for a, b in itertools.pairwise(chain)]
    assert len({tuple(a) for a, _ in edges}) == len(edges), "a token with two followers"
    return writing_lm("llama", coded, edges, **more)


def calling() -> TransformersLM:
    """Behind "!" it calls T(7), and behind the response it writes " 49."."""
    return follows("! [T(7) ->", "] 49.")


def asking(kind: str, *arguments: Any, task: str = "task") -> list[Instance]:
    """Requests as the harness makes them."""
    return [Instance(kind, {}, given, 0, (task, i, 1)) for i, given in enumerate(arguments)]


COMMON = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {cache}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
WRITING = """
output_type: generate_until
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 8, do_sample: false, temperature: 1.0}}
metric_list: [{{metric: exact_match}}]
filter_list: [{{name: number, filter: [{{function: regex, regex_pattern: "([0-9]+)"}}, {{function: take_first}}]}}]
"""
CHOOSING = """
output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
metric_list: [{{metric: acc}}]
"""
QUESTIONS = ["Seven sevens!", "How much is 7 * 7!", "Say fifty!", "7 weeks, in days!"]
ANSWERS = ["49", "49", "50", "49"]
CHOICES = ["no [T(7)", "yes it is", "49"]


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both tasks; nothing may connect to anything, and nothing is kept outside the folder."""
    datasets = pytest.importorskip("datasets")
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
        monkeypatch.setattr(datasets.config, name, True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("torch.utils.collect_env.get_pretty_env_info", lambda: "not asked: it takes seconds")

    def connect(*_: object) -> None:
        raise AssertionError("something connects")

    monkeypatch.setattr(socket.socket, "connect", connect)
    rows = {
        "sevens": [{"question": q, "answer": a} for q, a in zip(QUESTIONS, ANSWERS, strict=True)],
        "choices": [{"question": q, "choices": CHOICES, "label": 2} for q in QUESTIONS],
    }
    for name, yaml in (("sevens", WRITING), ("choices", CHOOSING)):
        data = tmp_path / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        (tmp_path / f"{name}.yaml").write_text((COMMON + yaml).format(name=name, data=data, cache=tmp_path / "cache"))
    return tmp_path


def evaluated(model: HarnessModel, folder: Path, *names: str, **more: Any) -> dict[str, Any]:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return dict(simple_evaluate(model=model, tasks=list(names), task_manager=manager, bootstrap_iters=0, **more))


def test_the_harness_runs_its_tasks_with_tools_on(tasks: Path) -> None:
    tool = T({"7": "49"})
    lm = calling()
    model = HarnessModel(Toolformer(lm, [tool]), GenerationSettings(top_k=1))
    results = evaluated(model, tasks, "sevens", "choices")

    # every text is " 49": right for three of four questions
    assert results["results"]["sevens"]["exact_match,number"] == 0.75
    assert [s["resps"] for s in results["samples"]["sevens"]] == [[[" 49"]]] * 4
    assert tool.asked == [("7", "")] * 4
    assert model.calls_per_tool() == model.calls_per_tool("sevens") == {"T": 4}
    assert model.calls_per_tool("choices") == {}
    assert {(w.task, w.doc_id) for w in model.written} == {("sevens", i) for i in range(4)}
    assert all(w.generation.text == " [T(7) -> 49] 49" for w in model.written)
    assert results["config"]["toolformer_top_k"] == 1

    best = []
    for question, sample in zip(QUESTIONS, results["samples"]["choices"], strict=True):
        plain = [plain_log_p(lm, question, " " + c)[0] for c in CHOICES]
        assert [r[0][0] for r in sample["resps"]] == pytest.approx(plain, abs=CLOSE)
        best.append(plain.index(max(plain)))
    assert results["results"]["choices"]["acc,none"] == best.count(2) / 4


def test_the_harnesss_cache_answers_a_second_run(tasks: Path) -> None:
    tool = T({"7": "49"})
    model = HarnessModel(Toolformer(calling(), [tool]), GenerationSettings(top_k=1))
    first, second = (evaluated(model, tasks, "sevens", "choices", use_cache=str(tasks / "answers")) for _ in range(2))
    assert second["results"] == first["results"]
    assert len(tool.asked) == len(model.written) == 4


def test_a_chat_template_is_refused(tasks: Path) -> None:
    model = HarnessModel(Toolformer(calling(), []))
    with pytest.raises(UsageError, match="leave out apply_chat_template"):
        evaluated(model, tasks, "sevens", apply_chat_template=True)
    with pytest.raises(UsageError, match="no chat template"):
        model.apply_chat_template([{"role": "user", "content": "Hello"}])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolformer_core.evaluate.harness")
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    with pytest.raises(UsageError, match=r"pip install 'toolformer-platform\[harness\]'"):
        import toolformer_core.evaluate.harness  # noqa: F401


def test_a_stop_string_that_a_call_had_parted() -> None:
    lm = follows("! x [T(7) ->", "]yz.")
    model = HarnessModel(Toolformer(lm, [T({"7": "49"})]), GenerationSettings(top_k=1))
    (text,) = model.generate_until(asking("generate_until", ("So!", {"until": ["xy", "."]})))
    # " x [T(7) -> 49]yz" without the call is " xyz", and " " is in front of "xy"
    assert (text, model.written[0].generation.clean) == (" ", " xyz")


def test_calls_that_reach_no_tool_are_not_counted() -> None:
    model = HarnessModel(
        Toolformer(calling(), [T({"7": "49"})]), GenerationSettings(top_k=1, tools=(), max_new_tokens=9, stop=(".",))
    )
    model.generate_until(asking("generate_until", ("So!", {})))
    assert [c.failure for c in model.written[0].generation.calls] == ["not_enabled"]
    assert model.calls_per_tool() == {}


def test_a_long_context_loses_its_beginning() -> None:
    model = HarnessModel(Toolformer(follows("! x y.z", context=64), []), GenerationSettings(top_k=0))
    words = "x " * 100 + "So!"
    texts = model.generate_until(
        asking("generate_until", (words, {"max_gen_toks": 4}), ("So!", {"max_gen_toks": 4}), (words, {}))
    )
    assert texts[0] == texts[1] == " x y.z"
    assert [w.truncated for w in model.written] == [True, False, True]
    # bos and 59 tokens leave 4 of 64; with 64 asked for, half of the context is kept in front of them
    assert 64 - 4 - 3 < model.written[0].generation.prompt_tokens <= 64 - 4
    assert 32 - 3 < model.written[2].generation.prompt_tokens <= 32 + 1


def test_repeated_samples_differ_and_come_again() -> None:
    lm = tiny_lm()
    samples = ("Once", {"do_sample": True, "temperature": 1.5, "max_gen_toks": 12})
    requests = asking("generate_until", samples, samples, samples, ("Once", {"do_sample": False, "max_gen_toks": 12}))
    model = HarnessModel(Toolformer(lm, []), GenerationSettings(top_k=0))
    texts = model.generate_until(requests)
    assert len(set(texts)) == 4
    assert model.generate_until(requests) == texts
    (greedy,) = Toolformer(lm, []).generate(["Once"], GenerationSettings(top_k=0, max_new_tokens=12))
    assert texts[3] == greedy.clean
    other = HarnessModel(Toolformer(lm, []), GenerationSettings(top_k=0, seed=1))
    assert not set(other.generate_until(requests)[:3]) & set(texts)


BASE = GenerationSettings(max_new_tokens=50, stop=("Q:",), top_p=0.5)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"until": ["\n", "", "Q:"]}, {"stop": ("Q:", "\n")}),
        ({"until": "\n", "max_gen_toks": 7, "max_tokens": 9}, {"stop": ("Q:", "\n"), "max_new_tokens": 7}),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0, "top_k": 5}, {}),
        ({"do_sample": True}, {"temperature": 1.0}),
        ({"do_sample": True, "temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
        ({"temperature": 0.2}, {"temperature": 0.2}),
        ({"do_sample": None, "temperature": 0}, {}),
    ],
)
def test_a_tasks_keywords_become_settings(keywords: dict[str, Any], expected: dict[str, Any]) -> None:
    assert settings_for(BASE, keywords) == dataclasses.replace(BASE, **expected)
    for unknown in ({"num_beams": 4}, {"do_sample": True, "temperature": 1, "top_k": 5}):
        with pytest.raises(UsageError, match="not supported"):
            settings_for(BASE, keywords | unknown)


def plain_scores(lm: TransformersLM, ids: list[int], n: int) -> tuple[float, bool]:
    """The last n tokens one by one, each from a pass of the whole model over those before it, " [" impossible."""
    *before, last = lm.hf_model.trigger
    total, greedy = 0.0, True
    for j in range(len(ids) - n, len(ids)):
        with torch.no_grad():
            logits = lm.hf_model.model(input_ids=torch.tensor([ids[:j]]), use_cache=False).logits[0, -1].float().clone()
        if ids[j] != last and ids[j - len(before) : j] == before:
            logits[last] = -torch.inf
        total += float(torch.log_softmax(logits, -1)[ids[j]])
        greedy = greedy and int(logits.argmax()) == ids[j]
    return total, greedy


def plain_log_p(lm: TransformersLM, context: str, continuation: str) -> tuple[float, bool]:
    whole, front = ([0, *lm.hf_model.encode(t)] for t in (context + continuation, context))
    return plain_scores(lm, whole, len(whole) - len(front))


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_log_likelihoods_are_the_plain_computation(family: str, merged: bool) -> None:
    lm = tiny_lm(family, merged_trigger=merged, token_budget=200)
    pairs = [(text[:at], text[at:]) for text in TEXTS for at in (0, text.find(" ")) if at >= 0]
    pairs += [("It is", " [x]"), ("It is", " "), ("It is ", "so")]
    scores = HarnessModel(Toolformer(lm, [])).loglikelihood(asking("loglikelihood", *pairs), disable_tqdm=True)
    for (context, continuation), (log_p, greedy) in zip(pairs, scores, strict=True):
        moved = len(context) - len(context.rstrip())  # a space at the end goes to the continuation
        cut = len(context) - moved
        plain = plain_log_p(lm, context[:cut], context[cut:] + continuation)
        assert (log_p, greedy) == (pytest.approx(plain[0], abs=CLOSE), plain[1])


@pytest.mark.parametrize("merged", [True, False])
def test_whole_texts_in_windows_of_one_context(merged: bool) -> None:
    lm = tiny_lm(context=24, merged_trigger=merged)
    texts = [*TEXTS, "The Nile [a] is long, and so is this text, " * 3, ""]
    sums = HarnessModel(Toolformer(lm, [])).loglikelihood_rolling(
        asking("loglikelihood_rolling", *((t,) for t in texts))
    )
    for text, log_p in zip(texts, sums, strict=True):
        ids = [0, *lm.hf_model.encode(text)]
        # windows predict 24 tokens each, from the one before them on; the last one predicts the rest, and reaches
        # back as far as a context of 24 goes (its last token is not fed, so it holds 25)
        plain = 0.0
        for start in range(1, len(ids), 24):
            end = min(start + 24, len(ids))
            plain += plain_scores(lm, ids[max(0, end - 25) : end], end - start)[0]
        assert log_p == pytest.approx(plain, abs=CLOSE * max(1, len(ids)))
    assert sums[-1] == 0


def test_long_contexts_are_cut_on_the_left_and_long_continuations_refused() -> None:
    lm = tiny_lm(context=16)
    model = HarnessModel(Toolformer(lm, []))
    context = "x y z, " * 9
    ids = lm.hf_model.encode(context + "so")
    n = len(ids) - len(lm.hf_model.encode(context.rstrip()))
    ((log_p, _),) = model.loglikelihood(asking("loglikelihood", (context, "so")), disable_tqdm=True)
    assert log_p == pytest.approx(plain_scores(lm, [0, *ids[-16:]], n)[0], abs=CLOSE)
    with pytest.raises(UsageError, match="does not fit into the context of 16"):
        model.loglikelihood(asking("loglikelihood", ("So", context)), disable_tqdm=True)


def test_a_continuation_that_merges_into_its_context_is_still_scored() -> None:
    lm = tiny_lm()
    context, e = lm.hf_model.encode("The Nil"), lm.hf_model.encode("e")
    # " Nile" is one token: nothing is left behind the context
    assert len(lm.hf_model.encode("The Nile")) < len(context)
    ((log_p, _),) = HarnessModel(Toolformer(lm, [])).loglikelihood(asking("loglikelihood", ("The Nil", "e")), True)
    assert log_p == pytest.approx(plain_scores(lm, [0, *context, *e], 1)[0], abs=CLOSE)


def test_a_model_without_a_first_token_is_refused() -> None:
    lm = tiny_lm()
    lm.hf_model.bos = None
    with pytest.raises(ModelError, match="no bos or eos"):
        HarnessModel(Toolformer(lm, []))
