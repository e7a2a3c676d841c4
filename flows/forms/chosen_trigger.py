"""What `--trigger` names: thresholds on p(" ["): `fitted` for the model, of a FILE.json, or calculator=0.2,qa=0.1."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote

from flows.forms.calls import thresholds
from tasks.training.registry import trained_model
from tasks.training.trigger import TRIGGER_FILE, read_trigger
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UnknownNameError, UsageError


def chosen_trigger(text: str, model: str, keys: Iterable[str], digest: str = "") -> Mapping[str, float]:
    """Return the thresholds by the tools' keys, none of tools that are not used; `digest` is the model's, if known."""
    text, known = text.strip(), {*TOOL_NAMES, *keys}
    if not text:
        return {}
    if text.endswith(".json") or "=" not in text:
        found = _fitted(model, digest) if text == "fitted" else read_trigger(Path(text).expanduser()).thresholds
        if chosen := {key: threshold for key, threshold in found.items() if key in known}:
            return chosen
        raise UsageError("--trigger: no threshold was fitted for these tools; the held-out documents had too few calls")
    try:
        numbers = thresholds(text)
    except ValueError as exc:
        raise UsageError(f"--trigger: {exc}") from None
    for key, number in numbers.items():
        if key not in known:
            raise UnknownNameError("tool", key, known)
        if not 0 <= number <= 1:
            raise UsageError(f"--trigger: {key}={number:g} is no probability; give a number from 0 to 1")
    return numbers


def _fitted(model: str, digest: str) -> Mapping[str, float]:
    from toolformer_core.lm.load import model_digest

    trained = trained_model(model)
    file = Path(trained).parent / TRIGGER_FILE
    if not Path(trained).is_dir() or not file.is_file():
        raise UsageError(
            f"no thresholds were fitted for {model}: run toolformer fit-trigger --model {quote(model)}, or give "
            "--trigger numbers, e.g. calculator=0.2,qa=0.1"
        )
    fitted = read_trigger(file)
    if fitted.model_digest != (digest or model_digest(trained)):
        raise UsageError(f"the thresholds in {file} were fitted for other weights: run toolformer fit-trigger again")
    return fitted.thresholds
