"""A language model behind a vLLM server, of which only the tokenizer is here.

    scan     one request a window: the N most likely tokens at every place; see `scanning`
    draw     one request a draw, with its own seed
    score    one request a sequence: the log-probability of each of its tokens, which the server always reports

The sequences, windows and positions are those of the model if it were loaded here (`windowing`, `scoring`). The numbers
are the server's: in its precision, and with what its batches do to them. What costs less here, keys and values that
draws and positions share, is the server's business; for `prompt_logprobs` vLLM reads every prompt anew.

Before any result is given away the probe is repeated (`identity`): so no result is made of two models.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Insertion, Scan, ScoreRequest
from toolformer_core.lm.load import LoadedTokenizer, load_tokenizer
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.reference import NO_CREDENTIALS, Credentials, ModelRef
from toolformer_core.lm.remote.identity import TOLERANCE, RemoteModel, describe, difference, probe_of, tokenizer_for
from toolformer_core.lm.remote.scanning import ScanReader, scan_texts
from toolformer_core.lm.scoring import ScoreSequence, score_requests
from toolformer_core.lm.vllm_server import AT_ONCE, VllmServer
from toolformer_core.records import Prompt, digest_of

__all__ = ["RemoteLM", "describe_remote", "load_remote_model"]

_TRIES = 8  # of a request while the server is busy or away: over 90 seconds


class RemoteLM:
    """A causal LM that annotates and scores on a server.

    Args:
        model: which model it is to serve.

    Raises:
        ModelError: see `PromptTokenizer`.
    """

    def __init__(self, server: VllmServer, model: RemoteModel, tokenizer: LoadedTokenizer, *, name: str) -> None:
        self.server = server
        self.model = model
        self.tokenizer: PromptTokenizer = tokenizer_for(tokenizer, name, model.context)
        self._name = name
        self._tokens = 0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def digest(self) -> str:
        """See `LanguageModel.digest`. How many tokens the server tells is part of it."""
        return digest_of(self.model.digest, self.model.tokenizer_digest, str(self.model.logprobs))

    @property
    def tokens(self) -> int:
        """Tokens of all sequences read, and of all draws; the prompts of draws, which the server caches, are not."""
        return self._tokens

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel.scan`; the scans are `PartialScan`s.

        Raises:
            ContextError: prompt and call leave too little of the context for a document.
            ModelError: the server does not answer, or serves a different model by now.
        """
        reader = ScanReader(self.server, self.tokenizer, self.model.logprobs, self._count, self.verify)
        return scan_texts(reader, prompt, texts)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaN: its call cannot be scored.

        Raises:
            ModelError: the server does not answer, or serves a different model by now.
        """
        # a request writes a token after its sequence
        return score_requests(self.tokenizer, requests, self._score, self.tokenizer.context_length - 1)

    def verify(self) -> None:
        """Ask the server for the probe again.

        Raises:
            ModelError: the server does not answer, or serves a different model by now.
        """
        now = probe_of(self.server, self.tokenizer)
        if not (differs := difference(now, self.model.probe)) < TOLERANCE:
            raise ModelError(
                f"{self.server.url} serves another model under the name {self.server.model!r} than when this run began "
                f"(a fixed text's log-probabilities differ by {differs:.2g} nats per token); nothing of it is stored: "
                "start the server with the first one and run the same command again, or begin anew with the other"
            )

    def _score(self, sequences: list[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        """Return all answers of some sequences."""
        if not sequences:
            return []

        def read(sequence: ScoreSequence) -> NDArray[np.float32]:
            ids = sequence.ids.tolist()
            self._count(len(ids))
            # without a start token x_1 has no probability: NaN, which makes the gain NaN too
            log_probs = self.server.log_probs(ids) if len(ids) > 1 else []
            return np.array([np.nan, *log_probs], dtype=np.float32)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            log_probs = list(pool.map(read, sequences))
        self.verify()
        return [
            (i, of_tokens[first + sequence.shift : last + sequence.shift])
            for sequence, of_tokens in zip(sequences, log_probs, strict=True)
            for i, first, last in sequence.answers
        ]

    def _count(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens


def _server_of(named: ModelRef, credentials: Credentials | None, tries: int) -> VllmServer:
    if named.kind != "remote":
        raise ModelError(f"model {named.name!r} does not live behind a server; write remote+http://host:port/v1#model")
    known = credentials or named.credentials or NO_CREDENTIALS
    return VllmServer(named.url, named.model, credentials=known, tries=tries)


def describe_remote(model: str | ModelRef, credentials: Credentials | None = None) -> RemoteModel:
    """Ask a server which model it serves; a server that does not answer is not waited for.

    Args:
        model: `remote+http://host:port/v1#model`, or what that was parsed to.
        credentials: the server's credentials; default: those in the name.

    Raises:
        ModelError: see `describe`.
    """
    named = ModelRef.of(model)
    return describe(_server_of(named, credentials, 1), named)


def load_remote_model(
    model: str | ModelRef, *, served: RemoteModel | None = None, credentials: Credentials | None = None
) -> RemoteLM:
    """Return a model that lives behind a server, for annotation; no weights are read or downloaded.

    Args:
        model: `remote+http://host:port/v1#model`, or what that was parsed to.
        served: which model the server is to serve; None: the one that it serves now.
        credentials: the server's credentials; default: those in the name. The model's name never holds them.

    Raises:
        ModelError: see `describe`; or the server serves a different model.
    """
    named = ModelRef.of(model)
    found = served or describe_remote(named, credentials)
    lm = RemoteLM(_server_of(named, credentials, _TRIES), found, load_tokenizer(found.tokenizer), name=named.name)
    lm.verify()
    return lm
