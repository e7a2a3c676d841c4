"""Packed rows give each piece the numbers it has alone, in every family, whichever way its attention goes."""

import numpy as np
import pytest
import torch
from tiny import tiny_lm

from toolformer_core.finetune import attention
from toolformer_core.finetune.texts import Piece, make_micro_batch, pack

FAMILIES = ["llama", "gpt2", "gptj", "gpt_neox", "qwen2", "mistral"]
LENGTHS = [9, 2, 17, 5, 30, 8, 3, 16]


def pieces() -> list[Piece]:
    rng = np.random.default_rng(3)
    return [Piece(rng.integers(1, 300, n), np.arange(n) > 0) for n in LENGTHS]


def nll(model: torch.nn.Module, rows: list[list[Piece]], packed: bool) -> torch.Tensor:
    laid = make_micro_batch(rows)
    ids, positions, weights = (torch.from_numpy(x) for x in (laid.ids, laid.positions, laid.weights))
    more = {}
    if packed and attention.supports(model, 30):
        layout = attention.layout_of(positions)
        more = {} if layout is None else {"layout": layout}
    logits = model(input_ids=ids, position_ids=positions, use_cache=False, **more).logits
    each = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (each * weights[:, 1:].flatten()).sum()


def gradient(model: torch.nn.Module, loss: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None])


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient_are_those_of_the_pieces_alone(family: str) -> None:
    model = tiny_lm(family).hf_model.model.requires_grad_(True)
    alone = sum((nll(model, [[p]], packed=False) for p in pieces()), torch.zeros(()))
    wanted = gradient(model, alone)
    assert attention.supports(model, 30) is (family not in ("gptj", "mistral"))  # own attention; a window of 24
    if attention.supports(model, 30):
        model.config.get_text_config()._attn_implementation = attention.PACKED
    together = nll(model, [[pieces()[i] for i in row] for row in pack(LENGTHS, 40)], packed=True)
    found = gradient(model, together)
    assert float((together - alone).detach().abs()) < 1e-3
    assert float((found - wanted).abs().max()) < 1e-4 * max(1.0, float(wanted.abs().max()))


def test_pieces_lie_in_blocks_of_like_length() -> None:
    # two rows: pieces of 3 and 2 tokens, and one of 5
    positions = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]])
    layout = attention.layout_of(positions)
    assert layout is not None
    assert layout.shapes == ((1, 2), (1, 3), (1, 5))  # up to 2 tokens, up to 4, up to 8
    assert layout.source.tolist() == [3, 4, 0, 1, 2, 5, 6, 7, 8, 9]
    assert layout.real.all()
    assert layout.place.tolist() == [2, 3, 4, 0, 1, 5, 6, 7, 8, 9]
    assert attention.layout_of(torch.arange(4)[None]) is None  # one piece a row: nothing to keep apart


def test_a_window_shorter_than_a_piece_goes_hugging_face_s_way() -> None:
    model = tiny_lm("mistral").hf_model.model
    model.config.get_text_config().sliding_window = 16
    assert attention.supports(model, 16)  # it reaches over a whole piece
    assert not attention.supports(model, 17)
