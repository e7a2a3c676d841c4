"""The small LM and its hidden states, with a small random model, against the plain computation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_lm, tokenizer

from toolformer_core.errors import UsageError
from toolformer_core.grounding.encoders import HiddenStateEncoder, cosines, encoder_digest, load_encoder, normalised
from toolformer_core.grounding.small_lm import HFSmallLM, first_line
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import Prompt
from toolformer_core.syntax import find_close, name_begun

HEAD = Prompt("adder", "It adds.\n\nQuestion: 1 and 2?\nCall: [Adder(1 + 2)]\n\nQuestion: ", "\nCall:")
TEXTS = ["3 and 4?\nCall:", "what are 10 and 20 together?\nCall:", "7?\nCall:"]


def greedy(lm: TransformersLM, text: str, tokens: int) -> str:
    """Return what follows " [" after a text, one token and one whole pass at a time, up to its "]"."""
    hf = lm.hf_model
    lead = [] if hf.bos is None else [hf.bos]
    ids = [*lead, *hf.encode(text), *hf.trigger]
    written: list[int] = []
    for _ in range(tokens):
        with torch.inference_mode():
            token = int(hf.model(torch.tensor([[*ids, *written]])).logits[0, -1].argmax())
        if token in hf.end_ids:
            break
        written.append(token)
        if find_close(hf.text(written)) is not None:
            break
    out = hf.text(written)
    close = find_close(out)
    return out if close is None else out[:close]


def test_calls_are_those_of_the_plain_computation() -> None:
    lm = tiny_lm()
    samples = HFSmallLM(lm).calls(HEAD, TEXTS, max_tokens=12)
    plain = [greedy(lm, HEAD.head + text, 12) for text in TEXTS]
    assert [draw.text if draw else None for draw in samples] == plain


def test_sampled_calls_depend_on_prompt_and_text_alone() -> None:
    lm = HFSmallLM(tiny_lm())
    sampled = [draw.text for draw in lm.calls(HEAD, TEXTS, max_tokens=12, top_p=0.9) if draw]
    alone = [draw.text for text in TEXTS for draw in lm.calls(HEAD, [text], max_tokens=12, top_p=0.9) if draw]
    assert sampled == alone
    # of a set that holds the most likely token alone, it is drawn; sampling ends at a line's end
    likeliest = [draw.text for draw in lm.calls(HEAD, TEXTS, max_tokens=12, top_p=1e-9) if draw]
    assert likeliest == [greedy(lm.lm, HEAD.head + text, 12).partition("\n")[0] for text in TEXTS]
    assert sampled != likeliest
    assert lm.calls(HEAD, ["word " * lm.lm.hf_model.context_length], max_tokens=4, top_p=0.9) == [None]


def test_heads_that_were_not_used_for_longest_are_dropped() -> None:
    hf = tiny_lm().hf_model
    prompts = [Prompt("t", f"head {n} ", "") for n in range(3)]
    hf.head(prompts[0])
    size = sum(x.numel() * x.element_size() for pair in hf._heads[prompts[0].digest][1] for x in pair)
    hf.budget.cache = 2 * size  # the three heads have the same number of tokens
    for prompt in (prompts[1], prompts[0], prompts[2]):
        hf.head(prompt)
    assert list(hf._heads) == [prompts[0].digest, prompts[2].digest]


def test_what_cannot_become_the_tools_call_is_not_continued() -> None:
    lm = HFSmallLM(tiny_lm())
    whole = [draw.text for draw in lm.calls(HEAD, TEXTS, max_tokens=12) if draw]
    for name in ("Adder", whole[0].split()[0][:2]):
        cut = [draw.text for draw in lm.calls(HEAD, TEXTS, max_tokens=12, name=name) if draw]
        for short, long in zip(cut, whole, strict=True):
            assert long.startswith(short)
            assert (short == long) or name_begun(short.rstrip("\ufffd")) not in ("", name)
    assert any(len(a) < len(b) for a, b in zip(cut, whole, strict=True))


def test_a_text_that_does_not_fit_gives_no_call_and_no_answer() -> None:
    lm = HFSmallLM(tiny_lm())
    too_long = "word " * lm.lm.hf_model.context_length
    assert lm.calls(HEAD, [too_long, TEXTS[0]], max_tokens=4)[0] is None
    first, second = lm.answers([too_long, "Q: a\nA:"], max_tokens=4)
    assert (first, second) == ("", lm.answers(["Q: a\nA:"], max_tokens=4)[0])


def test_answers_do_not_depend_on_each_other() -> None:
    lm = HFSmallLM(tiny_lm())
    prompts = ["Q: 1 + 2?\nA:", "Q: who?\nA:", "Q: a much longer question than the others?\nA:"]
    together = lm.answers(prompts, max_tokens=6)
    assert together == [lm.answers([prompt], max_tokens=6)[0] for prompt in prompts]


@pytest.mark.parametrize(("text", "line"), [("\n\n 4 \n5", "4"), ("", ""), ("  \n ", ""), ("a", "a"), ("a\rb", "a")])
def test_the_first_line_that_is_not_blank(text: str, line: str) -> None:
    assert first_line(text) == line


def test_an_embedding_is_the_mean_of_the_hidden_states() -> None:
    lm = tiny_lm()
    texts = ["a short text", "a text that is a good deal longer than the other one", ""]
    encoded = HiddenStateEncoder(lm.hf_model, lm.digest).encode(texts)
    for text, row in zip(texts, encoded, strict=True):
        lead = [] if lm.hf_model.bos is None else [lm.hf_model.bos]
        ids = torch.tensor([[*lead, *lm.hf_model.encode(text or " ")]])
        with torch.inference_mode():
            hidden = lm.hf_model.model.base_model(ids).last_hidden_state[0, len(lead) :].mean(dim=0).numpy()
        assert row == pytest.approx(hidden / np.linalg.norm(hidden), abs=1e-5)


def test_a_text_longer_than_the_context_is_cut() -> None:
    lm = tiny_lm()
    encoder = HiddenStateEncoder(lm.hf_model, lm.digest)
    text = "word " * lm.hf_model.context_length
    assert encoder.encode([text]).shape == encoder.encode([text + "more"]).shape
    assert encoder.encode([]).shape == (0, 0)


def test_cosines_by_hand() -> None:
    rows = normalised([[3, 4], [0, 0]])
    assert rows.tolist() == [pytest.approx([0.6, 0.8]), [0, 0]]
    # (0.6, 0.8) with (1, 0) and (0.8, 0.6): 0.6 and 0.48 + 0.48
    assert cosines(rows, normalised([[1, 0], [4, 3]])).tolist() == [pytest.approx([0.6, 0.96]), [0, 0]]


def test_an_encoder_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="encoder"):
        load_encoder("no-such-folder/model")


def test_a_model2vec_model_is_an_encoder(tmp_path: Path) -> None:
    model2vec = pytest.importorskip("model2vec")
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    static = model2vec.StaticModel(vectors=vectors, tokenizer=tokenizer().backend_tokenizer, normalize=False)
    static.save_pretrained(tmp_path)
    ids = tokenizer()("a text", add_special_tokens=False)["input_ids"]
    encoder = load_encoder(str(tmp_path))
    assert encoder.encode(["a text"])[0] == pytest.approx(normalised([vectors[ids].mean(axis=0)])[0], abs=1e-5)
    before = encoder_digest(str(tmp_path))
    assert encoder.digest == before
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text() + " ")
    assert encoder_digest(str(tmp_path)) != before


def test_a_sentence_transformers_model_is_an_encoder(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    lm = tiny_lm()
    lm.hf_model.model.save_pretrained(tmp_path / "lm")
    lm.hf_model.tokenizer.pad_token = lm.hf_model.tokenizer.eos_token
    lm.hf_model.tokenizer.save_pretrained(tmp_path / "lm")
    models = package.sentence_transformer.modules
    word = models.Transformer(str(tmp_path / "lm"))
    pooling = models.Pooling(word.get_embedding_dimension(), "mean")
    package.SentenceTransformer(modules=[word, pooling], device="cpu").save(str(tmp_path / "encoder"))
    encoder = load_encoder(str(tmp_path / "encoder"))
    rows = encoder.encode(["a text", "another"])
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1], abs=1e-5)
    ids = torch.tensor([lm.hf_model.encode("a text")])
    with torch.inference_mode():
        hidden = lm.hf_model.model.base_model(ids).last_hidden_state[0].mean(dim=0).numpy()
    assert rows[0] == pytest.approx(normalised([hidden])[0], abs=1e-4)
