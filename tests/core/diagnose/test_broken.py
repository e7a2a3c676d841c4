"""Models broken on purpose: a diagnosis names the step, and finds nothing wrong with the whole model."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Regex, normalizers

from tests.core.diagnose import broken
from toolformer_core.diagnose.figures import Figures
from toolformer_core.diagnose.gold import GoldTexts, read_gold
from toolformer_core.diagnose.run import DiagnoseConfig, measure
from toolformer_core.diagnose.verdict import STEPS, Verdict, judge
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import call_fault
from toolformer_core.tools.build import build_tools

FEW = {"documents": 8, "top_k": 4, "samples": 2}


@cache
def texts() -> GoldTexts:
    return read_gold()


def measured(lm: TransformersLM, prompts: Path | None = None, **fewer: int) -> Figures:
    config = DiagnoseConfig(**FEW | fewer, prompts=prompts)
    (one,) = measure(lm, build_tools(["calculator"]), texts(), config)
    return one


def passed(verdict: Verdict) -> dict[str, bool | None]:
    return {check.step: check.passed for check in verdict.checks}


@cache
def whole() -> Figures:
    return measured(broken.whole())


def test_the_whole_model_can_be_taught() -> None:
    assert not call_fault(broken.whole().hf_model.tokenizer, "Calculator")
    verdict = judge(whole())
    assert verdict.teachable
    assert all(passed(verdict).values())


def test_random_weights() -> None:
    verdict = judge(measured(broken.random_weights(), documents=4))
    assert verdict.step == "language"
    assert "checkpoint" in verdict.suggestion


def test_a_tokenizer_that_merges_the_bracket_with_the_name_changes_no_measure() -> None:
    """But for the share of five tokens more in each softmax: prompt and gold calls have the same tokens."""
    found, expected = (judge(one) for one in (measured(broken.merged()), whole()))
    assert found.teachable
    assert [check.measured for check in found.checks] == [
        pytest.approx(check.measured, abs=1e-3) for check in expected.checks
    ]


@pytest.mark.parametrize(
    ("normalizer", "back"),
    [
        (normalizers.Replace("->", ""), "[Calculator(1)  1]"),
        (normalizers.Replace(Regex("[()]"), ""), "[Calculator1 -> 1]"),
        (normalizers.Lowercase(), "[calculator(1) -> 1]"),
    ],
)
def test_a_tokenizer_that_loses_a_part_of_a_call(normalizer: normalizers.Normalizer, back: str) -> None:
    lm = broken.losing(normalizer)
    assert call_fault(lm.hf_model.tokenizer, "Calculator").endswith(f'is decoded as "{back}"')
    figures = replace(whole(), faults={"tokenizer": call_fault(lm.hf_model.tokenizer, "Calculator")})
    verdict = judge(figures)  # though all that is measured does well
    assert verdict.step == "tokenizer"
    assert back in verdict.description
    assert "lower-casing" in verdict.suggestion


def test_a_diagnosis_looks_at_what_the_tokenizer_loses() -> None:
    figures = measured(broken.losing(normalizers.Replace("->", "")), documents=2)
    assert judge(figures).step == "tokenizer"


def test_a_prompt_without_demonstrations(tmp_path: Path) -> None:
    prompts = broken.prompts_without_demonstrations(tmp_path / "prompts")
    verdict = judge(measured(broken.whole(), prompts=prompts))
    assert verdict.step == "prompt"
    assert verdict.description.startswith("0 demonstrations")
    assert passed(verdict)["copying"]  # the filter does not see the prompt


def test_a_model_that_writes_calls_and_cannot_use_the_response() -> None:
    verdict = judge(measured(broken.blind()))
    assert verdict.step == "copying"
    assert all(passed(verdict)[step] for step in STEPS[: STEPS.index("copying")])


@pytest.mark.parametrize("tokens", [64, 420])  # less than the prompt has, and too little for a text behind it
def test_a_prompt_too_long_for_the_context(tokens: int) -> None:
    lm = broken.whole()
    lm.hf_model.context_length = tokens
    verdict = judge(measured(lm))
    assert verdict.step == "prompt"
    assert str(tokens) in verdict.description
    assert "shorter prompt" in verdict.suggestion
