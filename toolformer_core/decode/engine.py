"""Continuous batching: sequences join, wait for their tools, and leave, while the others continue decoding.

Rows times the most tokens that a sequence can ever hold never exceed what the cache may hold. A free row goes to the
request (the owner of sequences) with the fewest rows, and among those to the one that has waited longest; a request
without any takes one from the request with the most, if that has others. None of this changes what a sequence writes.
One thread drives an engine (`step` and `wait`, or `run`); `submit` and `cancel` may be called from any thread.
"""

import queue
import threading
from collections.abc import Callable
from functools import partial

import torch

from toolformer_core.config import TOOL_NAMES
from toolformer_core.decode.choice import choose
from toolformer_core.decode.kv_cache import KVCache
from toolformer_core.decode.records import DecodeEvent, Emit, Finished, GenerationSettings
from toolformer_core.decode.sequence import DecodeSequence, ModelInfo
from toolformer_core.errors import EngineStoppedError, UnknownNameError, UsageError
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.records import unencodable
from toolformer_core.tools.fair import FairQueue
from toolformer_core.tools.pool import ToolPool

_MIN_SHARED = 16  # a common beginning is copied from this many tokens on
_CHUNK = 512  # tokens of a prompt per pass, so that other sequences do not wait longer


class Handle:
    """A submitted sequence. Its events go to `events`, unless `submit` was given a listener."""

    sequence: DecodeSequence  # known once it is submitted

    def __init__(self, index: int, on_event: Emit | None, owner: object) -> None:
        self.index = index
        self.owner = self if owner is None else owner
        self.events: queue.SimpleQueue[DecodeEvent] = queue.SimpleQueue()
        self.done = False  # whether its `Finished` event is delivered
        self._on_event = on_event or self.events.put

    def _emit(self, event: DecodeEvent) -> None:
        self.done = self.done or isinstance(event, Finished)
        self._on_event(event)


class DecodeEngine:
    """Decodes any number of sequences, at most `max_rows` at once, with keys and values of `cached_tokens` at most."""

    def __init__(self, hf_model: HFModel, pool: ToolPool, *, max_rows: int, cached_tokens: int) -> None:
        self.hf_model = hf_model
        self.pool = pool
        self.max_rows = max_rows
        self.cached_tokens = cached_tokens
        tools = {name: tool.key for name, tool in pool.tools.items()}
        known = (hf_model.tokenizer, tuple(hf_model.trigger), end_ids(hf_model), hf_model.context_length)
        self._model_info = ModelInfo(*known, tools)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: FairQueue[Handle] = FairQueue()
        self._running: list[Handle] = []  # the index is the row in the cache
        self._cache = KVCache(hf_model)
        self._stopped = False
        self._submit_lock = threading.Lock()  # nothing is submitted after the last sequence is stopped

    @property
    def waiting(self) -> int:
        """The number of sequences without a row."""
        return len(self._waiting) + self._inbox.qsize()

    @property
    def running(self) -> int:
        """The number of unfinished sequences with a row, including those that wait for a tool; about, while it runs."""
        return sum(not handle.sequence.finished for handle in list(self._running))

    def submit(
        self,
        prompt: str,
        settings: GenerationSettings,
        *,
        index: int = 0,
        on_event: Emit | None = None,
        owner: object = None,
    ) -> Handle:
        """Submit a sequence.

        Args:
            prompt: the text to continue; the model's beginning-of-text token is put in front.
            on_event: called with every event, in the driving thread; it must be quick and must not raise.
            owner: the same for all sequences of one request; rows are shared fairly among owners. None: itself.

        Raises:
            UsageError: the prompt is empty, no UTF-8 or longer than the context, or the sequence than the cache.
            EngineStoppedError: the engine has been stopped.
            UnknownNameError: the settings name an unknown tool; in `trigger` the paper's may stand even if absent.
        """
        keys = self._model_info.tools.values()
        for key in settings.tools or ():
            if key not in keys:
                raise UnknownNameError("tool", key, keys)
        for key in settings.trigger:
            if key not in (known := {*keys, *TOOL_NAMES}):
                raise UnknownNameError("tool in trigger", key, known)
        ids = self._prompt_ids(prompt)
        handle = Handle(index, on_event, owner)
        sequence = handle.sequence = DecodeSequence(self._model_info, ids, settings, handle._emit, index)
        if _columns(sequence) > self.cached_tokens:
            raise UsageError(
                f"the sequence may take {sequence.max_tokens} tokens, but the cache holds {self.cached_tokens}; lower "
                "max_new_tokens or max_calls, or give the engine more cached_tokens"
            )
        self.between_rounds(lambda: self._waiting.put(handle.owner, handle))
        return handle

    def _prompt_ids(self, prompt: str) -> list[int]:
        if flaw := unencodable(prompt):
            raise UsageError(f"the prompt is not UTF-8 text ({flaw}); remove that character")
        ids, lead = self.hf_model.encode(prompt), self.hf_model.lead
        ids = ids if ids[:1] == lead else [*lead, *ids]
        if not ids:
            raise UsageError("the prompt is empty, and the model has no beginning-of-text token; write some text")
        if len(ids) >= self.hf_model.context_length:
            raise UsageError(
                f"the prompt has {len(ids)} tokens, but the context of model {self.hf_model.name!r} is only "
                f"{self.hf_model.context_description}; shorten the prompt"
            )
        return ids

    def cancel(self, handle: Handle) -> None:
        """End a sequence; its `Finished` event says "cancelled", unless it has ended already."""
        self._inbox.put(partial(self._cancel, handle))

    def between_rounds(self, work: Callable[[], None]) -> None:
        """Have the driving thread do some short work with the model between two rounds; called from any thread.

        It must not raise. An `EngineStoppedError` if the engine has been stopped.
        """
        with self._submit_lock:
            if self._stopped:
                raise EngineStoppedError("the engine has been stopped; use another one")
            self._inbox.put(work)

    def step(self) -> bool:
        """Do one round; return False if there was nothing to compute: no sequence is left, or all wait for tools."""
        while not self._inbox.empty():
            self._inbox.get()()
        self.pool.expire()
        with self.hf_model.lock, torch.inference_mode():
            self._remove_finished()
            self._admit()
            self._reserve_memory()
            self._copy_shared_beginnings()
            fed_many = self._feed(self._rows_with_many_tokens())
            fed_one = self._feed(self._rows_with_one_token())
        return fed_many or fed_one

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until `step` has something to do, or until the timeout."""
        timeouts = [t for t in (self.pool.expire(), timeout_s) if t is not None]
        try:
            message = self._inbox.get(timeout=max(0.001, min(timeouts)) if timeouts else None)
        except queue.Empty:
            return
        message()

    def run(self) -> None:
        """Drive the engine until `stop`; whatever happens, every sequence gets its `Finished` event."""
        try:
            while not self._stopped:
                if not self.step() and not self._stopped:  # a stop that `step` read is followed by no other message
                    self.wait()
        finally:
            with self._submit_lock:
                self._stopped = True
            while not self._inbox.empty():
                self._inbox.get()()
            for handle in (*self._running, *self._waiting):
                handle.sequence.end("stopped")
            self._running, self._waiting = [], FairQueue()
            self._cache.release()

    def stop(self) -> None:
        """Let `run` return after its current round; may be called from any thread."""
        self._inbox.put(partial(setattr, self, "_stopped", True))

    def _cancel(self, handle: Handle) -> None:
        handle.sequence.end("cancelled")
        self._waiting.discard(handle.owner, handle)

    def _admit(self) -> None:
        if not self._running:
            self._cache.release()
        while self._waiting:
            owner, handle = self._waiting.first()
            if handle.sequence.finished:  # it lost its row while a tool ran, and the response filled its context
                self._waiting.discard(owner, handle)
                continue
            if not self._fits(handle.sequence) and not self._give_up_a_row(owner, handle.sequence):
                break
            self._running.append(self._waiting.take())

    def _fits(self, sequence: DecodeSequence, without: int | None = None) -> bool:
        """Return whether a sequence fits beside the running ones, leaving out the one in row `without`."""
        others = [other.sequence for row, other in enumerate(self._running) if row != without]
        columns = (len(others) + 1) * max(_columns(other) for other in (*others, sequence))
        return len(others) < self.max_rows and columns <= self.cached_tokens

    def _give_up_a_row(self, owner: object, sequence: DecodeSequence) -> bool:
        """Take a row from the request with the most rows for a request without any; return whether that was done."""
        most = max(self._waiting.in_progress(handle.owner) for handle in self._running)
        if self._waiting.in_progress(owner) or most < 2:
            return False
        rows = [row for row, h in enumerate(self._running) if self._waiting.in_progress(h.owner) == most]
        row = min(rows, key=lambda r: (len(self._running[r].sequence.ids), -r))  # the shortest costs least to recompute
        if not self._fits(sequence, without=row):
            return False
        handle = self._running[row]
        self._free_row(row)
        handle.sequence.cached = 0
        self._waiting.put_back(handle.owner, handle)
        return True

    def _reserve_memory(self) -> None:
        """Grow the cache to twice what is filled; `_admit` ensures that what the sequences may need fits."""
        if not self._running:
            return
        filled = max(len(handle.sequence.ids) for handle in self._running)
        if len(self._running) > self._cache.rows or KVCache.columns_for(filled) > self._cache.columns:
            longest = max(_columns(handle.sequence) for handle in self._running)
            columns = min(2 * KVCache.columns_for(filled), longest)
            self._cache.reserve(len(self._running), columns, self.cached_tokens)

    def _remove_finished(self) -> None:
        for row in range(len(self._running) - 1, -1, -1):
            handle = self._running[row]
            if handle.sequence.finished:
                self._free_row(row)
                self._waiting.done(handle.owner)

    def _free_row(self, row: int) -> None:
        """Free a row by moving the last row into its place."""
        last_row, last = len(self._running) - 1, self._running[-1]
        if row < last_row:
            if last.sequence.cached:  # a sequence admitted in this round has nothing in the cache yet
                self._cache.move(last_row, row, last.sequence.cached)
            self._running[row] = last  # before the old entry is removed, so that `running` never misses one
        self._running.pop()

    def _copy_shared_beginnings(self) -> None:
        """Copy to new sequences the keys and values of a beginning they share with a cached sequence."""
        sequences = [handle.sequence for handle in self._running]
        cached = [(row, sequence) for row, sequence in enumerate(sequences) if sequence.cached]
        for row, sequence in enumerate(sequences):
            if not sequence.cached and cached:
                n, source = max((min(_common_tokens(sequence, other), other.cached), r) for r, other in cached)
                if n >= _MIN_SHARED:
                    self._cache.move(source, row, n)
                    sequence.cached = n

    def _rows_with_many_tokens(self) -> list[int]:
        """Return the rows of sequences with several tokens to feed, within the budget.

        Of new ones that start alike it is one; the others copy its keys and values next round.
        """
        rows: list[int] = []
        firsts: list[DecodeSequence] = []
        longest = 0
        for row, handle in enumerate(self._running):
            sequence = handle.sequence
            tokens = min(len(sequence.pending), _CHUNK)
            if tokens <= 1:
                continue
            if not sequence.cached:
                if any(_common_tokens(sequence, other) >= _MIN_SHARED for other in firsts):
                    continue
                firsts.append(sequence)
            longest = max(longest, tokens)
            if rows and (len(rows) + 1) * longest > self.hf_model.budget.tokens:
                break
            rows.append(row)
        return rows

    def _rows_with_one_token(self) -> list[int]:
        """Move the sequences with one token to feed into the first rows, and return those rows."""
        ready = [len(handle.sequence.pending) == 1 for handle in self._running]
        n = sum(ready)
        replaceable = [row for row in range(n) if not ready[row]]
        for row in range(n, len(ready)):
            if ready[row]:
                other = replaceable.pop()
                a, b = self._running[other], self._running[row]
                self._cache.swap(other, row, max(a.sequence.cached, b.sequence.cached))
                self._running[other], self._running[row] = b, a
        return list(range(n))

    def _feed(self, rows: list[int]) -> bool:
        if not rows:
            return False
        handles = [self._running[row] for row in rows]
        sequences = [handle.sequence for handle in handles]
        tokens = [sequence.pending[:_CHUNK] for sequence in sequences]
        hidden = self._cache.feed(rows, [sequence.cached for sequence in sequences], tokens)
        for sequence, new in zip(sequences, tokens, strict=True):
            sequence.cached += len(new)
        ready = [i for i, sequence in enumerate(sequences) if not sequence.pending]
        if ready:
            states = hidden if len(ready) == len(handles) else hidden[torch.tensor(ready, device=hidden.device)]
            choices = choose(self.hf_model.logits(states), [sequences[i] for i in ready])
            for i, choice in zip(ready, choices, strict=True):
                sequence = sequences[i]
                if (request := sequence.advance(*choice)) is not None:
                    context, post = sequence.settings.context, self._inbox.put
                    self.pool.ask(request.tool, request.input, context, post, sequence.answer, handles[i].owner)
        return True


def _common_tokens(sequence: DecodeSequence, other: DecodeSequence) -> int:
    """Return how many tokens two sequences share at the start, without the first one's last, which must be fed."""
    most = min(len(sequence.ids) - 1, len(other.ids))
    if sequence.ids[:_MIN_SHARED] != other.ids[:_MIN_SHARED]:
        return 0
    return next((i for i in range(most) if sequence.ids[i] != other.ids[i]), most)


def _columns(sequence: DecodeSequence) -> int:
    return KVCache.columns_for(sequence.max_tokens)


def end_ids(hf_model: HFModel) -> frozenset[int]:
    """Return the tokens that end a text: the tokenizer's, and those of the model's generation config."""
    more = getattr(getattr(hf_model.model, "generation_config", None), "eos_token_id", None)
    ids = [hf_model.tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(i for i in ids if i is not None)
