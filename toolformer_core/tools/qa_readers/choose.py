"""Chooses the reader of QA that a user names: the embedded one, a server, or a Hugging Face model by its architecture.

Nothing is loaded here, and no weights are read.
"""

from __future__ import annotations

from toolformer_core.endpoints import Credentials
from toolformer_core.errors import ModelError
from toolformer_core.tools.hf.checkpoint import find_checkpoint
from toolformer_core.tools.qa_readers.embedded import ExtractiveReader
from toolformer_core.tools.qa_readers.served import ServedReader, is_address
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.qa_readers.text_to_text import TextToTextReader
from toolformer_core.tools.reader import Reader


def choose_reader(name: str | None, credentials: Credentials | None = None) -> Reader:
    """Return a reader.

    Args:
        name: None or `embedded`; the address of a server with `#model`; or a folder or a hub name of a model.
        credentials: what the server requires of its clients; not used for others.

    Raises:
        ModelError: the address cannot be read; or the model is not found, or is neither extractive nor text-to-text.
    """
    if name is None or name == "embedded":
        return ExtractiveReader()
    if is_address(name):
        return ServedReader(name, credentials=credentials)
    config = find_checkpoint(name).config
    architectures = [str(architecture) for architecture in config.get("architectures") or ()]
    if any(architecture.endswith("ForQuestionAnswering") for architecture in architectures):
        return SpanReader(name)
    if config.get("is_encoder_decoder") and any(a.endswith("ForConditionalGeneration") for a in architectures):
        return TextToTextReader(name)
    raise ModelError(
        f"the model {name!r} ({', '.join(architectures) or 'of no named architecture'}) cannot read passages for QA: "
        "give an extractive model (...ForQuestionAnswering), a text-to-text model (e.g. T5ForConditionalGeneration), "
        "or, for a causal language model, the URL of a server (http://127.0.0.1:8000/v1#model)"
    )
