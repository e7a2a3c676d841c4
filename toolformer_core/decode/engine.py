"""Continuous batching: sequences join, wait for their tools, and leave, while the others go on decoding.

    submit --> waiting --a row is free--> running <--> waiting for a tool --> finished
                  prompts of newcomers go through the model together        rows and memory are free at once

A round (`step`) does what posted messages ask (submissions, cancellations, tools' answers), lets newcomers in, runs one
pass over sequences that have many tokens to catch up on (prompts, responses), and one over those that have one. A
sequence whose tool is at work has none, so it is left out; when its response is there, its tokens go through in one
pass behind the keys and values it has: none are computed a second time. Newcomers that begin like another sequence (the
examples of a prompt) copy its keys and values as far as they agree.

Memory is bounded: every sequence let in says the most tokens it can hold, and rows times the longest of them never
exceed the tokens the cache may hold. Others wait.

A free row goes to the request (the owner of one or many sequences) that has fewest rows, and of these to the one that
has waited longest. One that has none does not wait for a free row: the request that has most gives one up, if that
makes room enough and is not all it has. The sequence that was in it waits in front of its request's others, and later
goes on from where it stood: its tokens go through the model once more, in one pass. What a sequence writes depends on
none of this.

One thread drives an engine (`step` and `wait`, or `run`); `submit` and `cancel` may be called from any. It knows no
text: see `row` for what happens in a sequence, `slots` for where its keys and values lie.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch

from toolformer_core.decode.choice import choose
from toolformer_core.decode.fair import FairQueue
from toolformer_core.decode.pool import ToolPool
from toolformer_core.decode.records import Event, Finished, Settings
from toolformer_core.decode.row import Row, Vocabulary
from toolformer_core.decode.slots import Slots
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.network import Network
from toolformer_core.records import unencodable

__all__ = ["Engine", "Handle", "end_ids"]

_SHARED = 16  # tokens in common with another prompt from which on copying is worth while
_CHUNK = 512  # tokens of a prompt in one pass: others are not kept waiting for longer


class Handle:
    """A submitted sequence. Unless `submit` was given a listener, its events come out of `events`."""

    def __init__(self, index: int, on_event: Callable[[Event], None] | None, owner: object) -> None:
        self.index = index
        self.owner = self if owner is None else owner
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._on_event = on_event or self.events.put
        self._done = False
        self._row: Row | None = None

    @property
    def done(self) -> bool:
        """Whether its `Finished` has been handed out."""
        return self._done

    def _emit(self, event: Event) -> None:
        self._done = self._done or isinstance(event, Finished)
        self._on_event(event)


class Engine:
    """Decodes any number of sequences, `max_rows` at a time.

    Args:
        network: the model; see `slots.bytes_per_token` for which models will do.
        pool: the tools.
        max_rows: sequences decoded together.
        cached_tokens: tokens whose keys and values may be held, padding included.
    """

    def __init__(self, network: Network, pool: ToolPool, *, max_rows: int, cached_tokens: int) -> None:
        self.network = network
        self.pool = pool
        self.max_rows = max_rows
        self.cached_tokens = cached_tokens
        self._vocabulary = Vocabulary(
            tokenizer=network.tokenizer,
            trigger=tuple(network.trigger),
            ends=end_ids(network),
            context_length=network.context_length,
            tools={name: tool.key for name, tool in pool.tools.items()},
        )
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: FairQueue[tuple[Handle, Row]] = FairQueue()
        self._rows: list[tuple[Handle, Row]] = []  # in the order of their slots
        self._slots = Slots(network)
        self._stopped = False
        self._door = threading.Lock()  # nobody comes in once the last one is told that we have stopped

    @property
    def waiting(self) -> int:
        """Sequences that have no row yet."""
        return len(self._waiting) + self._inbox.qsize()

    @property
    def running(self) -> int:
        """Sequences that have a row and have not ended, those that wait for a tool included.

        Another thread may find one counted twice, or missed, for as long as it takes to change two rows' places.
        """
        return sum(not row.finished for _, row in list(self._rows))

    def submit(
        self,
        prompt: str,
        settings: Settings,
        *,
        index: int = 0,
        on_event: Callable[[Event], None] | None = None,
        owner: object = None,
    ) -> Handle:
        """Hand in a sequence.

        Args:
            prompt: the text to go on from; the model's beginning-of-text token is put in front.
            settings: how it is decoded.
            index: given back with its events.
            on_event: called with every event, in the driving thread; it must be quick and must not raise.
            owner: of all sequences of one request, the same object: rows are shared out among owners. None: the
                sequence is a request of its own.

        Raises:
            UsageError: the prompt is longer than the model's context, or the sequence than the cache; or there is
                nothing to go on from; or the prompt holds a lone surrogate.
            UnknownNameError: the settings name a tool that is not there.
        """
        keys = self._vocabulary.tools.values()
        for key in settings.tools or ():
            if key not in keys:
                raise UnknownNameError("tool", key, keys)
        ids = self._prompt_ids(prompt)
        handle = Handle(index, on_event, owner)
        row = Row(self._vocabulary, ids, settings, handle._emit, index)
        if _columns(row) > self.cached_tokens:
            raise UsageError(
                f"the sequence may take {row.needs} tokens, and the cache holds {self.cached_tokens}; lower "
                "max_new_tokens or max_calls, or give the engine more cached_tokens"
            )
        handle._row = row
        with self._door:
            if self._stopped:
                raise UsageError("the engine has been stopped; submit to another")
            self._inbox.put(lambda: self._waiting.put(handle.owner, (handle, row)))
        return handle

    def _prompt_ids(self, prompt: str) -> list[int]:
        if wrong := unencodable(prompt):
            raise UsageError(f"the prompt is not UTF-8 text ({wrong}); remove that character")
        ids = self.network.encode(prompt)
        if self.network.bos is not None and ids[:1] != [self.network.bos]:
            ids.insert(0, self.network.bos)
        if not ids:
            raise UsageError("the prompt is empty, and the model has no token that begins a text")
        if len(ids) >= self.network.context_length:
            raise UsageError(
                f"the prompt has {len(ids)} tokens, the context of model {self.network.name!r} only "
                f"{self.network.context_told}; shorten the prompt"
            )
        return ids

    def cancel(self, handle: Handle) -> None:
        """End a sequence; its `Finished` says "cancelled", unless it has ended already."""
        self._inbox.put(lambda: self._end(handle, "cancelled"))

    def step(self) -> bool:
        """Do one round; return False if there was nothing to compute: all sequences wait for tools, or none is left."""
        while not self._inbox.empty():
            self._inbox.get()()
        self.pool.expire()
        with self.network.lock, torch.inference_mode():
            self._remove_finished()
            self._admit()
            self._make_room()
            self._share()
            many = self._feed(self._behind())
            one = self._feed(self._in_front())
        return many or one

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until there is something to do for `step`, or the time is up."""
        due = self.pool.expire()
        given = [t for t in (due, timeout_s) if t is not None]
        try:
            message = self._inbox.get(timeout=max(0.001, min(given)) if given else None)
        except queue.Empty:
            return
        message()

    def run(self) -> None:
        """Drive the engine until `stop`; whatever happens, every sequence gets its `Finished`."""
        try:
            while not self._stopped:
                if not self.step():
                    self.wait()
        finally:
            with self._door:
                self._stopped = True
            while not self._inbox.empty():
                self._inbox.get()()
            for handle, row in (*self._rows, *self._waiting):
                row.end("stopped")
                handle._row = None
            self._rows, self._waiting = [], FairQueue()
            self._slots.release()

    def stop(self) -> None:
        """Have `run` return after its round; may be called from any thread."""
        self._inbox.put(self._set_stopped)

    def _set_stopped(self) -> None:
        self._stopped = True

    def _end(self, handle: Handle, why: str) -> None:
        if handle._row is not None:
            handle._row.end(why)
            self._waiting.discard(handle.owner, (handle, handle._row))

    def _admit(self) -> None:
        if not self._rows:
            self._slots.release()
        while self._waiting:
            owner, (handle, row) = self._waiting.first()
            if row.finished:  # it had given up its row while a tool was at work, and the answer filled its context
                handle._row = None
                self._waiting.discard(owner, (handle, row))
                continue
            if not self._fits(row) and not self._give_up_a_row(owner, row):
                break
            self._rows.append(self._waiting.take())

    def _fits(self, row: Row, without: int | None = None) -> bool:
        """Whether a sequence may have a row beside those there are, one of them perhaps left out."""
        there = [other for slot, (_, other) in enumerate(self._rows) if slot != without]
        columns = (len(there) + 1) * max(_columns(other) for other in (*there, row))
        return len(there) < self.max_rows and columns <= self.cached_tokens

    def _give_up_a_row(self, owner: object, row: Row) -> bool:
        """Let the request with most rows give one up for this sequence, if its own has none; return whether it did."""
        most = max(self._waiting.under_way(handle.owner) for handle, _ in self._rows)
        if self._waiting.under_way(owner) or most < 2:
            return False
        slots = [slot for slot, (h, _) in enumerate(self._rows) if self._waiting.under_way(h.owner) == most]
        slot = min(slots, key=lambda at: (len(self._rows[at][1].ids), -at))  # the least is computed once more
        if not self._fits(row, without=slot):
            return False
        handle, other = self._rows[slot]
        self._take_out(slot)
        other.fed = 0
        self._waiting.put_back(handle.owner, (handle, other))
        return True

    def _make_room(self) -> None:
        """Rows are given memory as they grow, twice what they fill; what they may come to need is free by `_admit`."""
        if not self._rows:
            return
        filled = max(len(row.ids) for _, row in self._rows)
        if len(self._rows) > self._slots.rows or Slots.columns_for(filled) > self._slots.columns:
            longest = max(_columns(row) for _, row in self._rows)
            columns = min(2 * Slots.columns_for(filled), longest)
            self._slots.reserve(len(self._rows), columns, self.cached_tokens)

    def _remove_finished(self) -> None:
        for slot in range(len(self._rows) - 1, -1, -1):
            handle, row = self._rows[slot]
            if row.finished:
                handle._row = None
                self._take_out(slot)
                self._waiting.done(handle.owner)

    def _take_out(self, slot: int) -> None:
        """The last row takes the place of the one that goes."""
        at, last = len(self._rows) - 1, self._rows[-1]
        if slot < at:
            if last[1].fed:  # a newcomer of this round has no slot yet
                self._slots.move(at, slot, last[1].fed)
            self._rows[slot] = last  # before it goes from its old place: whoever counts misses none
        self._rows.pop()

    def _share(self) -> None:
        """Give newcomers the keys and values of the beginning they have in common with a sequence that is there."""
        there = [(slot, row) for slot, (_, row) in enumerate(self._rows) if row.fed]
        for slot, (_, row) in enumerate(self._rows):
            if not row.fed and there:
                n, source = max((min(_in_common(row, other), other.fed), at) for at, other in there)
                if n >= _SHARED:
                    self._slots.move(source, slot, n)
                    row.fed = n

    def _behind(self) -> list[int]:
        """Slots of sequences with more than one token to be fed, as many as the budget allows.

        Of newcomers that begin alike only the first: the others have its keys and values in the next round.
        """
        out: list[int] = []
        first: list[Row] = []
        longest = 0
        for slot, (_, row) in enumerate(self._rows):
            tokens = min(len(row.pending), _CHUNK)
            if tokens > 1:
                if not row.fed:
                    if any(_in_common(row, other) >= _SHARED for other in first):
                        continue
                    first.append(row)
                longest = max(longest, tokens)
                if out and (len(out) + 1) * longest > self.network.token_budget:
                    break
                out.append(slot)
        return out

    def _in_front(self) -> list[int]:
        """Slots of sequences with one token to be fed, after putting them in front of the others."""
        wanted = [len(row.pending) == 1 for _, row in self._rows]
        n = sum(wanted)
        others = [slot for slot in range(n) if not wanted[slot]]
        for slot in range(n, len(wanted)):
            if wanted[slot]:
                other = others.pop()
                a, b = self._rows[other], self._rows[slot]
                self._slots.swap(other, slot, max(a[1].fed, b[1].fed))
                self._rows[other], self._rows[slot] = b, a
        return list(range(n))

    def _feed(self, slots: list[int]) -> bool:
        if not slots:
            return False
        rows = [self._rows[slot] for slot in slots]
        tokens = [row.pending[:_CHUNK] for _, row in rows]
        hidden = self._slots.feed(slots, [row.fed for _, row in rows], tokens)
        for (_, row), fed in zip(rows, tokens, strict=True):
            row.fed += len(fed)
        ready = [i for i, (_, row) in enumerate(rows) if not row.pending]
        if ready:
            part = hidden if len(ready) == len(rows) else hidden[torch.tensor(ready, device=hidden.device)]
            chosen = choose(self.network.logits(part), [rows[i][1] for i in ready])
            for i, choice in zip(ready, chosen, strict=True):
                handle, row = rows[i]
                asked = row.take(*choice)
                if asked is not None:
                    context, post = row.settings.context, self._inbox.put
                    self.pool.ask(asked.tool, asked.input, context, post, row.answer, handle.owner)
        return True


def _in_common(row: Row, other: Row) -> int:
    """Tokens that two sequences begin with, less the last one of the first, which must be fed in any case."""
    most = min(len(row.ids) - 1, len(other.ids))
    if row.ids[:_SHARED] != other.ids[:_SHARED]:
        return 0
    return next((i for i in range(most) if row.ids[i] != other.ids[i]), most)


def _columns(row: Row) -> int:
    """Columns a sequence takes: see `Slots.reserve`."""
    return Slots.columns_for(row.needs)


def end_ids(network: Network) -> frozenset[int]:
    """Return the tokens that end a text: the tokenizer's, and those of the model's generation config."""
    more = getattr(getattr(network.model, "generation_config", None), "eos_token_id", None)
    ids = [network.tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(i for i in ids if i is not None)
