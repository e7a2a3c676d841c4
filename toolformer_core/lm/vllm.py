"""The vLLM backend: a vLLM server draws the calls; the model in this process scans and scores.

At a server's precision the losses differ by more than the gain that is measured (`remote` scores there all the same).
So the same model is loaded here as well, and before the first scan the server's numbers for a short text are compared
with its own. vLLM returns the same draw for the same seed only as far as its batches round alike.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, Scan, ScanWrapper, ScoreRequest
from toolformer_core.lm.hf.engine import HFScan, TransformersLM, scan_windows
from toolformer_core.lm.vllm_server import VllmServer, draw_on
from toolformer_core.lm.windowing import windows_of
from toolformer_core.records import Prompt

_PROBE = "Of the 30 apples, 12 are red, and [Calculator(30 - 12) -> 18] 18 are green."
_MAX_DIFFERENCE = 0.1  # nats per token, mean: bfloat16 stays below it, a different model does not


class VllmLM(TransformersLM):
    """A model that scans and scores in this process, and whose samples a server makes, which is part of the digest."""

    def __init__(self, local: TransformersLM, server: VllmServer, *, name: str, digest: str) -> None:
        self.hf_model = local.hf_model
        self.server = server
        self.name, self.digest = name, digest
        self._checked = False

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel.scan`; a ModelError if the server does not answer, or serves a different model."""
        self.check()
        head = self.hf_model.head_ids(prompt)
        for scan in scan_windows(self.hf_model, prompt, windows_of(self.hf_model, prompt, texts)):
            yield VllmScan(scan, self.server, head)

    def check(self) -> None:
        """Compare the server's log-probabilities of a short text with the model's; a ModelError if they differ."""
        if self._checked:
            return
        ids = [*self.hf_model.lead, *self.hf_model.encode(_PROBE)]
        remote = np.asarray(self.server.log_probs(ids))
        (local,) = self.log_probs([ScoreRequest("", _PROBE, 0, len(ids))])
        difference = float(np.abs(local[-len(remote) :] - remote).mean())
        if not difference < _MAX_DIFFERENCE:
            raise ModelError(
                f"the numbers of {self.server.model!r} at {self.server.url} differ from those of the model here (by "
                f"{difference:.2g} nats per token); start the server with the same folder and without quantization"
            )
        self._checked = True


class VllmScan(ScanWrapper[HFScan]):
    """A scan made in this process, whose samples a server makes; see `base.Scan`."""

    def __init__(self, scan: HFScan, server: VllmServer, head: list[int]) -> None:
        super().__init__(scan)
        self._server = server
        self._head = head

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """See `Scan.draw`. What samples begin with is drawn here, its first free token included; the server goes on."""
        hf_model = self.inner.hf_model
        begun = [(Draw("", False), list[int]())] * len(requests)
        if begin:
            room = min(max_tokens, len(hf_model.beginning(begin).given) + 1)
            begun = self.inner.draw_tokens(requests, room, temperature, begin=begin)
        prompts = [[*self._head, *ids] for ids in self.inner.ids_before_draw(requests)]
        seeds = [request.seed & (2**63 - 1) for request in requests]
        return draw_on(self._server, prompts, seeds, begun, max_tokens, temperature, hf_model.context_length)
