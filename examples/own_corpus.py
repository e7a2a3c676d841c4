# %% [markdown]
# # From your own texts to a model that calls a tool
#
# Build C*, ask what other thresholds would give, take the data away, finetune, generate. Eight texts and four steps
# show how it goes, not how well: the model that ships with the repository has learnt its own small world alone.
#
#     python examples/own_corpus.py [FOLDER]
#
# Editors that know `# %%` run the cells one by one.

# %%
import json
import sys
from pathlib import Path

from tasks.environment import prepare_environment

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own-corpus").absolute()
data = folder / "data"
prepare_environment(str(data))  # before Prefect is imported: its records go into the data folder

# %% [markdown]
# ## A corpus
#
# One JSON object a line; `text` is all that is needed. Yours may be a folder of files, gzip, zstd or Parquet.

# %%
TEXTS = [
    f"The library counted its shelves in {month}. Of the {total} books, {lent} are lent out and only {total - lent} "
    f"stand in their place. The reading room has {rows} rows of {seats} chairs, which makes {rows * seats} in all."
    for month, total, lent, rows, seats in [
        ("January", 587, 58, 12, 14),
        ("February", 913, 276, 17, 23),
        ("March", 640, 125, 9, 31),
        ("April", 728, 319, 26, 11),
        ("May", 455, 87, 13, 19),
        ("June", 862, 408, 21, 16),
        ("July", 394, 153, 18, 27),
        ("August", 971, 682, 15, 24),
    ]
]
corpus = folder / "corpus.jsonl"
corpus.parent.mkdir(parents=True, exist_ok=True)
corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")

# %% [markdown]
# ## Build C*
#
# Every field has the paper's default; here few positions and samples, and a low threshold, for the time of it. Run the
# cell again, and nothing is done twice.

# %%
from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters

parameters = BuildParameters(
    corpus=str(corpus),
    data=str(data),
    tools=["calculator"],
    tau_f={"calculator": 0.0},
    top_k=4,
    samples=2,
)
built = run_build(parameters)
print(f"{built.dataset}@{built.version}: {built.examples} of {len(TEXTS)} texts got a call")

# %% [markdown]
# ## Ask the warehouse
#
# Any DuckDB client will do; the views are described in warehouse/README.md.

# %%
from warehouse.queries import rows_of

for row in rows_of(built.snapshot, "SELECT input, response, gain FROM best_calls ORDER BY gain DESC LIMIT 3"):
    print(f"{row['gain']:+.2f}  [Calculator({row['input']}) -> {row['response']}]")

# %% [markdown]
# ## What if?
#
# Scores are kept for every call, so another threshold needs no model.

# %%
from flows.build_dataset.what_if_query import ask
from warehouse.indexed_calls import IndexedCalls

what_if = ask(built.snapshot, {"calculator": 1.0})
calls = IndexedCalls(built.snapshot)
now, then = (calls.yields(choice)[0] for choice in (what_if.before, what_if.after))
print(f"at tau_f 0.0 {now.examples} texts with {now.calls} calls, at 1.0 {then.examples} with {then.calls}")

# %% [markdown]
# ## Take it away
#
# `text`, `jsonl` (with the spans of the calls, from which the plain text is recovered), or `hf`.

# %%
from flows.export.run import export_dataset
from warehouse.store import Store

exported = folder / f"cstar-{built.version}.jsonl"
for before in folder.glob(f"{exported.stem}.*"):  # its card and manifest lie beside it
    before.unlink()
rows = export_dataset(Store(str(data)), "cstar", "jsonl", exported)
print(f"{rows} texts in {exported.name}")

# %% [markdown]
# ## Finetune
#
# The paper's recipe is the default: 2,000 steps of 128 texts. This many texts want four.

# %%
from flows.finetune.flow import run_finetune
from flows.finetune.parameters import FinetuneParameters

trained = run_finetune(
    FinetuneParameters(
        data=str(data),
        dataset="cstar",
        profile="core",
        steps=4,
        batch=4,
        learning_rate=1e-4,
        evaluate_every=2,
        sequence_length=128,
        dev_documents=0,
    )
)
print(f"{trained.steps} steps; MLflow: run {trained.run_id} in {trained.tracking}")

# %% [markdown]
# ## Generate
#
# Decoding stops at the arrow of a call, runs the tool, and goes on after its answer. Four steps on eight texts teach
# nobody to call: expect a wrong number here, and calls from the model of `make demo`.

# %%
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.load import load_model
from toolformer_core.tools.build import ToolSettings, build_tools

prompt = "Of the 764 books, 91 are lent out and only"
tools = build_tools(("calculator",), ToolSettings())
toolformer = Toolformer(load_model(trained.model), list(tools.values()))
(written,) = toolformer.generate([prompt], GenerationSettings(max_new_tokens=16))
toolformer.close()
print(prompt + written.text)

# %%
from cli.terminal import leave

if __name__ == "__main__":
    leave(0)  # as the commands end: otherwise DuckDB's binding prints pages of leaks that are none
