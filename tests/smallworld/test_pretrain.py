"""Pretraining goes on from a model and leaves what `from_pretrained` reads; QK-Clip limits what logits may be."""

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from smallworld import pretrain as pretraining
from smallworld.lessons import lessons
from smallworld.pretrain import QKClip, pretrain, rare_pieces, train_tokenizer
from toolformer_core.embedded import MODEL
from toolformer_core.errors import UsageError


@pytest.fixture
def rare(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counting them takes seconds."""
    pieces = ["lend", "arch"]
    monkeypatch.setattr(pretraining, "rare_pieces", lambda tokenizer: pieces)
    return pieces


def test_a_leg_of_three_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str], rare: list[str]) -> None:
    loss = pretrain(tmp_path, tokens=768, seed=7, length=128, rows=2, logit_limit=10.0, start=MODEL)
    assert "loss" in capsys.readouterr().out
    assert torch.tensor(5e-324, dtype=torch.float64) * 1 > 0  # denormals are the process's again
    told = json.loads((tmp_path / "pretraining.json").read_text())
    assert (told["steps"], told["tokens"], told["loss"]) == (3, 768, loss)  # 3 steps of 2 x 128
    model = LlamaForCausalLM.from_pretrained(tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    clip = QKClip(model, 10.0)
    ids = [i for text in itertools.islice(lessons(8, rare), 8) for i in (0, *tokenizer.encode(text))]
    model(input_ids=torch.tensor([ids[512:640]]))  # read in the last step, before weights were rounded to bfloat16
    assert clip.clip() == pytest.approx(10, rel=0.05)


def test_the_mean_of_the_first_and_the_last_weights(tmp_path: Path, rare: list[str]) -> None:
    weights = {}
    for average in (False, True):
        out = tmp_path / str(average)
        pretrain(out, tokens=512, seed=7, length=128, rows=2, start=MODEL, average=average)
        assert json.loads((out / "pretraining.json").read_text()).get("average", False) is average
        weights[average] = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    first, moved = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32).state_dict(), 0.0
    for name, last in weights[False].items():
        half, size = (first[name] + last) / 2, first[name].abs() + last.abs()
        assert ((weights[True][name] - half).abs() <= 2**-8 * size).all(), name  # rounded to bfloat16's 8 bits
        moved = max(moved, float((last - first[name]).abs().max()))
    assert moved > 0.005
    with pytest.raises(UsageError, match="give --start"):
        pretrain(tmp_path / "nothing", average=True)


@pytest.mark.slow
def test_tokens_that_texts_hardly_have_are_read_as_names() -> None:
    tokenizer = train_tokenizer(2, texts=2_000)
    rare = rare_pieces(tokenizer)
    assert 20 < len(rare) < 200  # of some 700 tokens of letters
    assert "".join(rare).isalpha()

    def read(pieces: list[str]) -> Counter[int]:
        texts = itertools.islice(lessons(3, pieces), 1_000)
        return Counter(i for ids in tokenizer(list(texts))["input_ids"] for i in ids)

    # "alend" comes of " calendar", which is a token itself
    calendar = tokenizer.encode(" [Calendar(", add_special_tokens=False)
    assert min(read([])[i] for i in calendar) == 0
    named = read(rare)
    assert min(named[i] for i in calendar) >= 5
    ids = tokenizer.convert_tokens_to_ids(rare)
    assert sum(named[i] >= 2 for i in ids) > 0.8 * len(ids)  # the others are merged with what comes before them


# QK-Clip: only heads above the limit are touched.


@pytest.fixture
def model() -> LlamaForCausalLM:
    """One layer, two heads of four; what enters the projections has length sqrt(8), as RMSNorm's weights are ones."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=4
    )
    model = LlamaForCausalLM(config)
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        attention.q_proj.weight.copy_(torch.eye(8))
        attention.k_proj.weight.copy_(torch.eye(8))
        # the only token there is, [2, 0, 0, 0, 2, 0, 0, 0], has the root mean square 1 and is its own norm
        model.model.embed_tokens.weight.copy_(torch.tensor([2.0, 0, 0, 0, 2, 0, 0, 0]).repeat(11, 1))
    return model


def test_heads_above_the_limit_come_down_to_it(model: LlamaForCausalLM) -> None:
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        attention.q_proj.weight[:4] *= 40  # the first head's queries have length 80, its keys 2
    clip = QKClip(model, limit=20.0)
    ids = torch.tensor([[1, 2, 3]])
    model(ids)
    # first head: 80 * 2 / sqrt(4) = 80; second: 2 * 2 / 2 = 2
    assert clip.clip() == pytest.approx(80, rel=1e-4)
    # 20 / 80 in the product, thus a half on either side
    assert torch.allclose(attention.q_proj.weight[:4], 20 * torch.eye(8)[:4], rtol=1e-4)
    assert torch.allclose(attention.k_proj.weight[:4], 0.5 * torch.eye(8)[:4], rtol=1e-4)
    assert torch.equal(attention.q_proj.weight[4:], torch.eye(8)[4:])
    assert torch.equal(attention.k_proj.weight[4:], torch.eye(8)[4:])
    model(ids)
    assert clip.clip() == pytest.approx(20, rel=1e-4)


def test_the_longest_position_of_a_pass_counts(model: LlamaForCausalLM) -> None:
    with torch.no_grad():
        model.model.embed_tokens.weight[5] = torch.tensor([2.0, 0, 0, 0, 0, 0, 0, 0])
    clip = QKClip(model, limit=100.0)
    model(torch.tensor([[1, 5], [2, 3]]))
    # RMSNorm makes [2, 0, ...] (root mean square sqrt(4/8)) sqrt(8) long: 8 / sqrt(4) = 4 in the first head
    assert clip.clip() == pytest.approx(4, rel=1e-4)
