"""What a user does wrong, by command: exit 2, one line that says what to do, nothing on stdout, nothing left behind."""

import shlex
from pathlib import Path

import pytest

from tests.support.commands import Run

WRITING = [
    ("--tools abacus", "abacus"),
    ("--date yesterday", "--date"),
    ("--top-p 0", "top_p"),
    ("--trigger calculator=2", "calculator=2 is no probability"),
    ("--trigger fitted", "no thresholds were fitted for embedded"),
]
# Command -> what is written after it, and what the line says.
MISTAKES: dict[str, list[tuple[str, ...]]] = {
    "": [
        ("buld", "Did you mean 'build'?"),
        ("build", "Missing option '--corpus'"),
        ("build --corpus no-such.jsonl", "no such corpus: no-such.jsonl"),
        ("export --format csv out", "'text', 'jsonl', 'hf'"),
        ("tools test calcualtor '1 + 1'", "Did you mean 'calculator'? Valid: calculator, calendar, date_arithmetic"),
    ],
    "build --corpus {corpus} --data {data}": [
        ("--tools calculator,calender", "unknown tool 'calender'", "Did you mean 'calendar'?", "wikisearch"),
        ("--tools ' , '", "no tool was named", "calculator"),
        ("--model embeded", "'embeded'", "Did you mean 'embedded'?"),
        ("--columns text=txt", "unknown column 'txt'", "Did you mean 'text'?", "timestamp, url"),
        ("--tau-f nonsense", "--tau-f", "'nonsense'", "calculator=0.5"),
        ("--tau-f qa=1,calculater=1", "unknown tool 'calculater'", "Did you mean 'calculator'?"),
        ("--limit 0", "--limit", "greater than or equal to 1. Try 'toolformer build --help'."),
        ("--dataset 'my data'", "--dataset", "'my data'", "letters, digits"),
        ("--runner ray", "--runner", "'ray'", "threads, dask"),
        ("--passages no-such.jsonl", "no-such.jsonl"),
        ("--limt 3", "--limt", "--limit", "toolformer build --help"),
    ],
    "plan --data {data}": [
        ("--documents 1e9 --assume qa.kept_shar=1", "Did you mean 'qa.kept_share'?"),
        ("--gpu h100 --gpu-price 1", "--gpu, --gpu-price: for a plan by numbers; say how many documents"),
        ("", "--corpus names the texts; for the cost by numbers alone give --documents"),
    ],
    "evaluate --data {data}": [("--task small-world --k ten", "--k: 'ten' is not a whole number; write e.g. 0,1,3,10")],
    "ground --data {data}": [("--task small-world --gamma 2", "--gamma")],
    "ground": [
        ("' '", "not blank"),
        ("q --mock qa --tools calculator", "not in the library: qa"),
        ("q --patterns nope", "nope"),
        ("q --date tomorrow", "tomorrow"),
    ],
    "diagnose --tools calculator": [
        ("--tau-f abacus=1", "abacus"),
        ("--tau-f calculator", "--tau-f"),
        ("--prompts nowhere", "no prompt"),
        ("--gold nowhere", "nowhere"),
        ("--model no/folder/here", "no folder"),
    ],
    **{"generate x": WRITING, "chat": WRITING},
    "serve --port 0": [
        ("--router-threshold 0.5", "--router-threshold has no effect without --router gear"),
        ("--router gear --router-mock abacus", "abacus"),
        ("--router gear --router-model embeded", "embeded"),
        ("--router gear --router-threshold nan", "--router-threshold"),
    ],
    "index wikipedia --out {index}": [
        ("none.xml", "error: no file at none.xml; give a dump"),
        ("{passages} --format kilt", "line 1 is not of the format kilt"),
    ],
}


@pytest.mark.parametrize(
    ("words", "says"), [(f"{command} {words}", says) for command, of_it in MISTAKES.items() for words, *says in of_it]
)
def test_a_mistake_is_one_line(run: Run, few_documents: Path, tmp_path: Path, words: str, says: list[str]) -> None:
    passages, data = tmp_path / "p.jsonl", tmp_path / "data"
    passages.write_text('{"title": "a", "text": "b"}\n', encoding="utf-8")
    places = {"corpus": few_documents, "data": data, "passages": passages, "index": tmp_path / "index"}
    said = run(*shlex.split(words.format(**places)))
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("error: ")
    for one in says:
        assert one in said.err
    assert not data.exists()
