import pickle

from toolformer_core import errors
from toolformer_core.errors import PromptError, ToolformerError, UnknownNameError, UsageError


def test_every_error_is_caught_by_the_root() -> None:
    own = [one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__]
    assert all(issubclass(one, ToolformerError) for one in own)
    assert issubclass(PromptError, UsageError)


def test_a_near_name_is_suggested_and_all_are_listed_also_after_pickling() -> None:
    assert str(UnknownNameError("tool", "zzz", [])) == "unknown tool 'zzz'. Valid: (none)."
    error = pickle.loads(pickle.dumps(UnknownNameError("tool", "Calcualtor", ["qa", "calculator"])))
    assert (error.kind, error.name, error.valid) == ("tool", "Calcualtor", ("calculator", "qa"))
    assert str(error) == "unknown tool 'Calcualtor'. Did you mean 'calculator'? Valid: calculator, qa."
