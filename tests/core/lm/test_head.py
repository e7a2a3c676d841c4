"""The output layer in pieces gives what it gives in one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from toolformer_core.lm.hf.head import LMHead

SIZES = [1, 31, 512, 1300]  # less than a piece, one block, two blocks and a part
ROWS = 400  # more than a chunk of rows


def head_of(layer: torch.nn.Linear) -> LMHead:
    """The head of a model that is an output layer and nothing behind it."""
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=layer.out_features))
    return LMHead(SimpleNamespace(config=config, get_output_embeddings=lambda: layer))


class Adapted(torch.nn.Linear):
    """A layer that is more than its weights."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


def layer_of(size: int, *, bias: bool = False, scale: float = 1.0, kind: Any = torch.nn.Linear) -> torch.nn.Linear:
    torch.manual_seed(size)
    layer: torch.nn.Linear = kind(16, size, bias=bias).requires_grad_(False)
    layer.weight.mul_(4 * scale)
    if bias:
        layer.bias.add_(torch.randn(size))
    return layer


# besides: a bias, logits of hundreds, a layer that is more than its weights
LAYERS = [layer_of(size) for size in SIZES]
LAYERS += [layer_of(1300, bias=True), layer_of(1300, scale=100), layer_of(1300, kind=Adapted)]


@pytest.mark.parametrize("layer", LAYERS)
def test_log_probabilities_of_targets(layer: torch.nn.Linear) -> None:
    hidden, targets = torch.randn(ROWS, 16), torch.randint(0, layer.out_features, (ROWS,))
    whole = torch.log_softmax(layer(hidden).double(), 1).gather(1, targets[:, None])[:, 0]
    got = head_of(layer).log_p(hidden, targets)
    torch.testing.assert_close(got.double(), whole, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_samples_pass_the_distribution_function_where_it_says(layer: torch.nn.Linear, temperature: float) -> None:
    """Two samples of every row: at the drawn token the function passes u, give or take how float32 rounds logits."""
    hidden, owner = torch.randn(ROWS, 16), torch.arange(ROWS).repeat_interleave(2)
    u = torch.rand(2 * ROWS, dtype=torch.float64)
    got = head_of(layer).draw(hidden, owner, u, temperature)
    edges = torch.softmax(layer(hidden).double() / temperature, 1).cumsum(1)[owner]
    after = edges.gather(1, got[:, None])[:, 0]
    before = torch.where(got > 0, edges.gather(1, (got - 1).clamp_min(0)[:, None])[:, 0], 0)
    assert (before - 1e-4 <= u).all()
    assert (u <= after + 1e-4).all()
    exact = torch.searchsorted(edges, u[:, None] * edges[:, -1:], right=True)[:, 0].clamp_max(layer.out_features - 1)
    assert (got == exact).float().mean() > 0.99


@pytest.mark.parametrize("layer", LAYERS)
def test_the_likeliest_token(layer: torch.nn.Linear) -> None:
    hidden = torch.randn(ROWS, 16)
    assert torch.equal(head_of(layer).most_likely(hidden), layer(hidden).argmax(1))


def test_of_equally_likely_tokens_the_first() -> None:
    """Tokens 3 and 700 stand in different pieces, with the same weights, the largest by far."""
    layer = layer_of(1300)
    layer.weight[3] = layer.weight[700] = 100.0
    assert head_of(layer).most_likely(torch.ones(5, 16)).tolist() == [3] * 5
    assert head_of(layer).log_p(torch.zeros(0, 16), torch.zeros(0, dtype=torch.long)).shape == (0,)  # nothing asked


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("bias", [False, True])
def test_a_restricted_token_has_its_share_of_the_allowed_mass(temperature: float, bias: bool) -> None:
    """Of 1,000 evenly spread numbers a token of probability p takes 1000 p, give or take one."""
    torch.manual_seed(3)
    layer = torch.nn.Linear(16, 1300, bias=bias).requires_grad_(False)
    head, tokens = head_of(layer), torch.tensor([0, 7, 512, 1299])
    hidden, n = torch.randn(2, 16), 1000
    u = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    owner = torch.arange(2).repeat_interleave(n)
    got = head.draw_among(hidden, owner, u.repeat(2), temperature, tokens).view(2, n)
    for row, state in zip(got, hidden, strict=True):
        wanted = torch.softmax(layer(state)[tokens] / temperature, 0)
        counts = torch.stack([(row == token).sum() for token in tokens])
        assert int(counts.sum()) == n
        assert bool((counts - n * wanted).abs().max() <= 1)
    mass = torch.log_softmax(layer(hidden), 1)[:, tokens].logsumexp(1)
    torch.testing.assert_close(head.log_p_among(hidden, tokens), mass, atol=1e-5, rtol=1e-5)
