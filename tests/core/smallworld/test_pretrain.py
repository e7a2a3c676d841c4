"""Pretraining goes on from a model, for a number of tokens, and leaves what `from_pretrained` reads."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from toolformer_core.smallworld.embedded import MODEL
from toolformer_core.smallworld.lessons import lessons
from toolformer_core.smallworld.pretrain import pretrain
from toolformer_core.smallworld.qk_clip import QKClip


def test_a_leg_of_three_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loss = pretrain(tmp_path, minutes=60, tokens=768, seed=7, length=128, rows=2, logit_limit=10.0, start=MODEL)
    assert "loss" in capsys.readouterr().out
    told = json.loads((tmp_path / "pretraining.json").read_text())
    assert (told["steps"], told["tokens"], told["loss"]) == (3, 768, loss)  # 3 steps of 2 x 128
    model = LlamaForCausalLM.from_pretrained(tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    clip = QKClip(model, 10.0)
    ids = [i for text in itertools.islice(lessons(8), 8) for i in (0, *tokenizer.encode(text))]
    model(input_ids=torch.tensor([ids[512:640]]))  # read in the last step, before weights were rounded to bfloat16
    assert clip.clip() == pytest.approx(10, rel=0.05)
