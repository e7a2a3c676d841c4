"""QK-Clip: what a head's logits may be at most, and that only heads above the limit are touched."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from smallworld.pretrain import QKClip


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
