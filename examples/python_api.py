# %% [markdown]
# # Tool calls from Python, in a few lines
#
# Annotate texts, see why each call is kept or dropped, bring a tool of your own, and generate with tools. There is no
# corpus file, no data folder and no server: `toolformer_core` runs on torch and transformers alone.
#
#     python examples/python_api.py
#
# Editors that know `# %%` run the cells one by one.

# %%
import toolformer_core as tf

model = tf.load_model("embedded")  # or a folder written by save_pretrained, or a hub name

# %% [markdown]
# ## Annotate
#
# The model draws calls where it expects one, the tool answers them, and a call is kept if its response makes what
# follows easier to predict, by at least tau_f. Options that are left out have the paper's values.

# %%
TEXTS = [
    "Of the 587 books, 58 are lent out and only 529 stand on the shelves.",
    "The library counted its chairs in May. The room has 13 rows of 19 chairs, which makes 247 in all.",
    "The ropes are orange this time of the year.",
]
annotations = tf.annotate_texts(TEXTS, model, ["calculator"], top_k=3, samples=4)
for annotation in annotations:
    print(annotation.annotated)

# %% [markdown]
# ## Why
#
# An annotation holds every call that was drawn, kept or not, with its gain in nats; the calls that the tool could not
# answer; and for a text without any, the reason.

# %%
for number, annotation in enumerate(annotations, start=1):
    outcome = annotation.tools["calculator"]
    print(f"text {number}: {outcome.outcome}, prefilter: {outcome.prefilter}, samples: {dict(outcome.samples)}")
    for call in annotation.calls:
        print(f"  {call.gain:+.2f} at {call.position:2}  {call.input} -> {call.response}  {call.reason or 'kept'}")
    for call in annotation.unanswered:
        print(f"  no gain at {call.position:2}  {call.input}  {call.failure}")

# %% [markdown]
# ## A tool of your own
#
# A tool is an object with a key, the name that it has in calls, and `run`, which takes a text and returns a text or a
# reason why there is none. It needs an annotation prompt: an instruction, a few examples, and `{text}` once.

# %%
import re


class Difference:
    key = "difference"
    name = "Difference"
    description = "Says by how much two whole numbers differ."
    fingerprint = "difference 1"  # builds run the tool again when it changes

    def load(self) -> None:
        pass

    def run(self, input: str, context: str = "") -> tf.ToolResponse | tf.ToolFailure:
        numbers = [int(digits) for digits in re.findall("[0-9]+", input)]
        if len(numbers) != 2:
            return tf.ToolFailure("not_two_numbers")
        return tf.ToolResponse(str(abs(numbers[0] - numbers[1])))


PROMPT = """\
Add calls to Difference where a text says by how much two numbers differ.

Input: Of the 350 seats, 112 were taken, so 238 stayed empty.
Output: Of the 350 seats, 112 were taken, so [Difference(350 - 112)] 238 stayed empty.

Input: A shelf holds 96 jars. After 35 were sold there were 61 left.
Output: A shelf holds 96 jars. After 35 were sold there were [Difference(96 - 35)] 61 left.

Input: {text}
Output:"""
[own] = tf.annotate_texts(TEXTS[:1], model, [Difference()], prompts={"difference": PROMPT}, tau_f=0.5)
print(own.annotated)

# %% [markdown]
# ## Generate
#
# Decoding stops at the arrow of a call, runs the tool, and goes on after its response. The embedded model has not
# learnt to call while it writes, so it is taught first, on texts that it annotates itself. Two passes over 24 texts are
# enough for one kind of sentence and for nothing else; `toolformer finetune` does it on a corpus.

# %%
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from toolformer_core.embedded import MODEL
from toolformer_core.lm.hf.engine import TransformersLM

NUMBERS = [(100 + 37 * i, 11 + 3 * i) for i in range(24)]
sentences = [f"Of the {a} books, {b} are lent out and only {a - b} stand on the shelves." for a, b in NUMBERS]
kept = [a.annotated for a in tf.annotate_texts(sentences, model, ["calculator"], top_k=2, samples=2) if a.kept]

network, tokenizer = AutoModelForCausalLM.from_pretrained(MODEL), AutoTokenizer.from_pretrained(MODEL)
optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)
for text in kept * 2:
    tokens = tokenizer(tokenizer.bos_token + text, return_tensors="pt")
    network(**tokens, labels=tokens.input_ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
taught = TransformersLM(network.eval().requires_grad_(False), tokenizer, name="taught", digest="taught")

prompt = "Of the 764 books, 91 are lent out and only"
written = tf.generate(prompt, taught, ["calculator"], tf.GenerationSettings(max_new_tokens=10))
print(f"{len(kept)} of {len(sentences)} sentences annotated")
print(prompt + written.text)
