"""One process of a training run: loads, trains, and classifies failures. `__main__` calls it."""

import errno
import math
import re
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from toolformer_core.finetune import attention
from toolformer_core.finetune.engines import TrainingEngine
from toolformer_core.finetune.events import EVENTS_FILE, event_writer
from toolformer_core.finetune.loop import LossError, Trainer
from toolformer_core.finetune.models import build_engine
from toolformer_core.finetune.recipe import Job
from toolformer_core.finetune.texts import encode_texts, read_texts
from toolformer_core.lm.hf.memory import out_of_memory
from toolformer_core.lm.hf.probe import embedding_rows
from toolformer_core.lm.tokens import check_calls, drop_unembedded_tokens, encode_following, start_token
from toolformer_core.syntax import OPEN, find_calls

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL = re.compile(
    "PytorchStreamWriter failed writing|inline_container.cc|No space left on device|os error 28|File too large"
)


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure as one word: nan_loss, out_of_memory, disk_full or error."""
    if isinstance(error, LossError):
        return "nan_loss"
    if out_of_memory(error):
        return "out_of_memory"
    full = isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS
    return "disk_full" if full or _DISK_FULL.search(str(error)) else "error"


def mixes_packed_texts(engine: TrainingEngine) -> bool:
    """Return whether a model's attention mixes a packed row's texts: whether a text's loss depends on the first one."""
    second = torch.arange(8, device=engine.device) % engine.model.config.get_text_config().vocab_size
    positions = torch.arange(8, device=engine.device).repeat(2)[None]
    weights = torch.ones(1, 16, device=engine.device)
    weights[:, :9] = 0
    engine.model.eval()
    with torch.no_grad():
        rows = (torch.cat([torch.full_like(second, first), second])[None] for first in (1, 2))
        one, other = (float(engine.loss(ids, positions, weights)) for ids in rows)
    engine.model.train()
    return not math.isclose(one, other, rel_tol=1e-3)  # half precision may sum in another order


def train(job: Job, folder: Path, *, rank: int = 0, local_rank: int = 0) -> None:
    """Train, from the last checkpoint if there is one; `reason_of` classifies all errors that it raises."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if job.device == "auto" else job.device
    device = torch.device(kind, local_rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    train, dev = read_texts(folder / job.train), read_texts(folder / job.dev) if job.dev else []
    recipe, length = job.recipe, job.recipe.sequence_length
    engine, tokenizer = build_engine(job.model, recipe, device)
    rows = embedding_rows(engine.model)
    start, end = start_token(tokenizer, engine.model.config), tokenizer.eos_token_id
    tokenizer = drop_unembedded_tokens(tokenizer, rows, job.model, start, end)
    first_call = islice((found.call.tool for one in train for found in find_calls(one)), 1)
    check_calls(tokenizer, job.model, first_call)
    trigger = encode_following(tokenizer, OPEN)
    packs = recipe.packing and attention.supports(engine.model, length)
    if recipe.packing and not packs and mixes_packed_texts(engine):
        if rank == 0:
            print("note: this model would attend from one packed text to another, so each row holds one text")  # noqa: T201
        job = replace(job, recipe=replace(recipe, packing=False))
    encode = partial(encode_texts, tokenizer, start=start, end=end, length=length)
    pieces, dev_pieces = encode(train), encode(dev, score_end=False) if dev else []
    emit = event_writer(folder / EVENTS_FILE if rank == 0 else None)
    forbidden = trigger[0] if len(trigger) == 1 else None
    Trainer(job, folder, engine, pieces, dev_pieces, emit, packs, forbidden).run()
