"""Small made-up files in the published format of every benchmark: what each holds, and what is to come out of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

__all__ = ["FORMATS", "Format", "lines", "packed"]


@dataclass(frozen=True, slots=True)
class Format:
    """A file of a benchmark."""

    task: str
    name: str
    text: str
    answers: list[tuple[str, ...]]  # of the items, in order
    rejected: list[tuple[int, str]] = field(default_factory=list)  # line and reason
    prompts: list[str] = field(default_factory=list)  # ends of the items' prompts, where they are to be looked at
    dates: list[str | None] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8")
        return path


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)


def packed(path: Path, how: str) -> Path:
    """Write a packed copy of a file of JSON lines."""
    data = path.read_bytes()
    if how == "parquet":
        out = path.with_suffix(".parquet")
        rows = [json.loads(line) for line in data.decode().splitlines()]
        names = dict.fromkeys(name for row in rows for name in row)
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), out)
        return out
    out = path.with_name(f"{path.name}.{how}")
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}
    out.write_bytes(pack[how](data))
    return out


def _squad(*articles: object) -> str:
    return json.dumps({"version": 1.0, "data": list(articles)}, indent=1, ensure_ascii=False)


_ASDIV = """<?xml version="1.0" encoding="UTF-8"?>
<Machine-Reading-Corpus-File>
\t<ProblemSet>
\t\t<Problem ID="toy-0001" Grade="1" Source="https://example.org">
\t\t\t<Body>Ana has six nuts &amp; two figs.</Body>
\t\t\t<Question>How many things has Ana?</Question>
\t\t\t<Solution-Type>Addition</Solution-Type>
\t\t\t<Answer>8 (things)</Answer>
\t\t\t<Formula>6+2=8</Formula>
\t\t</Problem>
\t\t<Problem ID="toy-0002" Grade="6" Source="https://example.org">
\t\t\t<Body>A bowl holds 66 nuts, 6 of them salted.</Body>
\t\t\t<Question>What is the ratio of plain to salted nuts?</Question>
\t\t\t<Solution-Type Subgoal-1="Subtraction">Ratio</Solution-Type>
\t\t\t<Answer>10:1</Answer>
\t\t</Problem>
\t\t<Problem ID="toy-0003" Grade="6" Source="https://example.org">
\t\t\t<Body>Broken <Question>Where does it end?</Question>
\t\t<Problem ID="toy-0004" Grade="6" Source="https://example.org">
\t\t\t<Body>Two of eight doors are red.</Body>
\t\t\t<Question>Which part of the doors is red?</Question>
\t\t\t<Answer>1/4</Answer>
\t\t</Problem>
\t\t<Problem ID="toy-0005"><Body>Nothing is asked.</Body><Answer>3</Answer></Problem>
\t</ProblemSet>
</Machine-Reading-Corpus-File>
"""

FORMATS = {
    "lama-squad": Format(
        "lama-squad",
        "Squad/test.jsonl",
        lines(
            {"masked_sentences": ["The old mill was built by [MASK] ."], "obj_label": "Ulric", "id": "s1"},
            {"masked_sentences": ["In [MASK] the mill burnt down."], "obj_label": "1850", "id": "s2"},
            {"masked_sentences": ["[MASK]"], "obj_label": "mill", "id": "s3"},
            {"masked_sentences": ["From [MASK] to [MASK]."], "obj_label": "mill", "id": "s4"},
            {"masked_sentences": ["Its owner is [MASK]"], "id": "s5"},
        ),
        [("Ulric",)],
        [(2, "mask_not_last"), (3, "mask_not_last"), (4, "mask_not_last"), (5, "no_obj_label")],
        ["factually correct: The old mill was built by"],
    ),
    "lama-google-re": Format(
        "lama-google-re",
        "Google_RE/place_of_birth_test.jsonl",
        lines(
            {
                "pred": "/people/person/place_of_birth",
                "sub_label": "Ulric Vane",
                "obj_label": "Tarn",
                "obj_aliases": ["Tarnby", "\U0001f1e8"],
                "uuid": "u1",
                "evidences": [{"snippet": "Ulric Vane was born in Tarn.", "considered_sentences": ["..."]}],
                "masked_sentences": ["Ulric Vane is a miller .", "He was born in [MASK] ."],
            },
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "u2", "masked_sentences": ["Ona (born [MASK]) sang."]},
        ),
        [("Tarn", "Tarnby")],
        [(2, "mask_not_last")],
        ["Ulric Vane is a miller . He was born in"],
    ),
    "lama-trex": Format(
        "lama-trex",
        "TREx/P19.jsonl",
        lines(
            {
                "uuid": "t1",
                "sub_label": "Ulric Vane",
                "obj_label": "France",
                "predicate_id": "P27",
                "evidences": [
                    {"sub_surface": "Vane", "obj_surface": "French", "masked_sentence": "Vane, a [MASK] man, sang."},
                    {"sub_surface": "Vane", "obj_surface": "French", "masked_sentence": "Ulric Vane is [MASK]."},
                ],
            },
            {"sub_label": "Ona Reed", "obj_label": "Tarn", "uuid": "t2"},  # a triple: the relation is the file's
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "t3", "template": "[X] came from [Y] ."},
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "t4", "template": "[Y] is where [X] came from ."},
            {"uuid": "t1", "obj_label": "France", "predicate_id": "P27", "masked_sentence": "Vane sings in [MASK]"},
            {"obj_label": "Tarn", "uuid": "t6"},
        ),
        [("France", "French"), ("Tarn",), ("Tarn",)],
        [(4, "mask_not_last"), (5, "same_fact"), (6, "no_statement")],
        ["Ulric Vane is", "The birthplace of Ona Reed is", "Ona came from"],
    ),
    "templama": Format(
        "templama",
        "test.json",
        lines(
            {
                "query": "Ulric Vane plays for _X_.",
                "answer": [{"wikidata_id": "Q1", "name": "Tarn United"}, {"wikidata_id": "Q2", "name": "FC Reed"}],
                "date": "2012",
                "id": "Q9_P54_2012",
                "relation": "P54",
            },
            {"query": "_X_ is the chair of Reed.", "answer": [{"name": "Ona"}], "date": "2012", "id": "Q8_P488_2012"},
            {"query": "Ona plays for _X_.", "answer": [{"name": "Tarn United"}], "date": "once", "id": "Q7_P54_x"},
            {"query": "Ona plays for _X_.", "answer": [], "date": "2014", "id": "Q7_P54_2014"},
            {"query": "Ona plays for _X_.", "answer": [{"name": "FC Reed"}], "date": "2014-05-02", "id": "Q7_P54_2"},
        ),
        [("Tarn United", "FC Reed"), ("FC Reed",)],
        [(2, "mask_not_last"), (3, "no_date"), (4, "no_answer")],
        ["Ulric Vane plays for", "Ona plays for"],
        ["2012-07-01", "2014-05-02"],
    ),
    "asdiv": Format(
        "asdiv",
        "ASDiv.xml",
        _ASDIV,
        [("8",), ("1/4",)],
        [(11, "not_one_number"), (17, "broken_xml"), (24, "no_question")],
        ["Ana has six nuts & two figs. How many things has Ana? The answer is"],
    ),
    "asdiv-hub": Format(
        "asdiv",
        "asdiv.jsonl",
        lines(
            {
                "body": "Ana has 3 nuts.",
                "question": "How many?",
                "answer": "3 (nuts)",
                "solution_type": "Sum",
                "formula": "",
            },
            {"body": "Two shops.", "question": "Which one?", "answer": "Shop 2", "solution_type": "Comparison"},
        ),
        [("3",)],
        [(2, "not_one_number")],
    ),
    "svamp": Format(
        "svamp",
        "SVAMP.json",
        """[
    {
        "ID": "toy-1",
        "Body": "Each box costs 64 coins. If 20 coins are taken off",
        "Question": "How much is a box?",
        "Equation": "( 64.0 - 20.0 )",
        "Answer": 44.0,
        "Type": "Subtraction"
    },
    {
        "ID": "toy-2",
        "Body": "Each box holds 7 nuts",
        "Answer": 7.0
    },
    "no row",
    {"ID": "toy-3", "Body": "A third", "Question": "of ten is?", "Answer": 3.3333333333333335, "Type": "Division"},
    {"ID": "toy-4", "Body": "x", "Question": "y?", "Answer": NaN},
    {"ID": "toy-5", "Body" "broken"},
    {"ID": "toy-6", "Body": "x", "Question": "y?", "Answer": 1}
]
""",
        [("44",), ("3.333333",), ("1",)],
        [(10, "no_question"), (15, "not_an_object"), (17, "not_one_number"), (18, "broken_json")],
        ["Each box costs 64 coins. If 20 coins are taken off How much is a box? The answer is"],
    ),
    "mawps": Format(
        "mawps",
        "SingleOp.json",
        json.dumps(
            [
                {"iIndex": 1, "sQuestion": "Two and 5 ?", "lEquations": ["X=2+5"], "lSolutions": [7.0]},
                {"iIndex": 2, "sQuestion": "Two lines ?", "lEquations": ["X=1", "Y=2"], "lSolutions": [1.0, 2.0]},
                {"iIndex": 3, "lEquations": ["X=1"], "lSolutions": [1.0]},
                {"iIndex": 1, "sQuestion": "Six and 5 ?", "lEquations": ["X=6+5"], "lSolutions": [11.0]},
            ],
            indent=2,
        ),
        [("7",), ("11",)],
        [(12, "not_one_number"), (24, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "mawps-hub": Format(
        "mawps",
        "mawps.jsonl",
        lines(
            {"id": "m1", "question": "Two and 5?", "chain": "...", "result": "7", "result_float": 7.0},
            {"Question": "N_00 and number1 ?", "Numbers": "8 2.0", "Equation": "+ N_00 N_01", "Answer": 10.0},
            {"Question": "N_00 and N_02 ?", "Numbers": "8 2", "Equation": "+ N_00 N_01", "Answer": 10.0},
            {"id": "m4", "original_text": "Half of 5 ?", "segmented_text": "", "equation": "x=5/2", "ans": 2.5},
        ),
        [("7",), ("10",), ("2.5",)],
        [(3, "no_number")],
        ["Two and 5? The answer is", "8 and 2 ? The answer is"],
    ),
    "mawps-fold": Format(
        "mawps",
        "mawps_fold0_test.orig.jsonl",
        lines(
            {
                "id": 3,
                "text": "N_0 and N_1 ?",
                "original": {"iIndex": 7, "sQuestion": "Two and 5 ?", "lEquations": ["X=2+5"], "lSolutions": [7.0]},
            },
            {"id": 4, "text": "N_0 ?", "original": {"iIndex": 8, "sQuestion": "Two ?", "lSolutions": [1.0, 2.0]}},
            {"id": 5, "original": "no object"},
        ),
        [("7",)],
        [(2, "not_one_number"), (3, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "gsm8k": Format(
        "gsm8k",
        "test.jsonl",
        lines(
            {"question": "Two and three?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"},
            {"question": "Much?", "answer": "It is.\n#### 1,234"},
            {"question": "Less?", "answer": "It is.\n#### -3"},
            {"question": "None?", "answer": "It is 5."},
            {"question": "Some?", "answer": "It is.\n#### some"},
            '{"question": "cut',
            '["no", "object"]',
        ),
        [("5",), ("1234",), ("-3",)],
        [(4, "no_answer"), (5, "not_one_number"), (6, "broken_json"), (7, "not_an_object")],
        ["Two and three? The answer is"],
    ),
    "webqs": Format(
        "webqs",
        "webquestions.test.json",
        """[
 {"qId": "w0", "answers": ["Tarn", "Reed"], "qText": "where is the mill?"},
 {"qId": "w1", "answers": [], "qText": "who knows?"},
 {"qId": "w2", "answers": ["Tarn"]}
]
""",
        [("Tarn", "Reed")],
        [(3, "no_answer"), (4, "no_question")],
        ["Answer the following question: where is the mill?"],
    ),
    "webqs-stanford": Format(
        "webqs",
        "webquestions.examples.test.json",
        json.dumps(
            [
                {
                    "url": "http://www.example.org/ona",
                    "targetValue": r'(list (description "Ona \"O\" Reed") (description Tarn) (description "St. R"))',
                    "utterance": "who is ona?",
                }
            ]
        ),
        [('Ona "O" Reed', "Tarn", "St. R")],
    ),
    "nq": Format(
        "nq",
        "NQ-open.dev.jsonl",
        lines(
            {"question": "who built the mill", "answer": ["Ulric Vane", "Ulric"]},
            {"question": "what is it", "answer": ["---"]},
            {"question": "what is the sign for times", "answer": ["a cross", "*"]},
            {"question": "   ", "answer": ["x"]},
            {"question": "who built the mill", "answer": ["Ulric Vane", "Ulric"]},
        ),
        [("Ulric Vane", "Ulric"), ("a cross",), ("Ulric Vane", "Ulric")],
        [(2, "no_answer"), (4, "no_question")],
        ["Answer the following question: who built the mill?"],
    ),
    "nq-tsv": Format(
        "nq",
        "nq-test.qa.tsv",
        "who built the mill\t['Ulric Vane', \"Ulric's son\"]\n"
        'where is it\t["Tarn"]\n'
        'who sang\t"[""Ona \'O\' Reed""]"\n'
        '"what is a mill\t["a house"]\n'
        "\n"
        "no tab here\n"
        "how many\t[]\n"
        "which town\tTarn\n",
        [("Ulric Vane", "Ulric's son"), ("Tarn",), ("Ona 'O' Reed",), ("a house",), ("Tarn",)],
        [(6, "wrong_columns"), (7, "no_answer")],
        ["Answer the following question: who built the mill?"],
    ),
    "situatedqa": Format(
        "situatedqa",
        "temp.test.jsonl",
        lines(
            {
                "question": "who keeps the mill",
                "id": -12,
                "edited_question": "who keeps the mill as of January 07, 2021",
                "date": "January 07, 2021",
                "date_type": "sampled_date",
                "answer": ["Ona Reed", "Ona Reed"],
                "any_answer": ["Ulric Vane", "Ona Reed"],
            },
            {"id": -12, "edited_question": "who keeps the mill as of 1998", "date": 1998, "answer": ["Ulric Vane"]},
            {"edited_question": "who as of 2018-05-21", "date": "2018-05-21", "answer": ["Ona"]},
            {"edited_question": "where is the mill in Tarn, Reedshire", "location": "Tarn", "answer": ["by the water"]},
            {"question": "who keeps the mill", "date": "1998", "answer": ["Ulric Vane"]},
            {"edited_question": "who as of February 30, 2021", "date": "February 30, 2021", "answer": ["Ona"]},
            {"edited_question": "who as of then", "date": "then", "answer": ["Ona"]},
            {"edited_question": "who as of 1998", "date": "1998", "answer": []},
        ),
        [("Ona Reed",), ("Ulric Vane",), ("Ona",), ("by the water",)],
        [(5, "no_edited_question"), (6, "no_date"), (7, "no_date"), (8, "no_answer")],
        ["Answer the following question: who keeps the mill as of January 07, 2021?"],
        ["2021-01-07", None, "2018-05-21", None],
    ),
    "triviaqa": Format(
        "triviaqa",
        "unfiltered-web-dev.json",
        json.dumps(
            {
                "Domain": "unfiltered-web",
                "Version": 1.0,
                "Data": [
                    {
                        "Answer": {
                            "Aliases": ["Ulric Vane", "The Miller"],
                            "MatchedWikiEntityName": "",
                            "NormalizedAliases": ["ulric vane", "miller"],
                            "NormalizedValue": "ulric",
                            "Type": "WikipediaEntity",
                            "Value": "Ulric",
                        },
                        "EntityPages": [],
                        "Question": "Who built the mill?",
                        "QuestionId": "tc_1",
                    },
                    {"Answer": {"Aliases": []}, "Question": "Who else?", "QuestionId": "tc_2"},
                ],
            },
            indent=4,
        ),
        [("Ulric", "Ulric Vane", "The Miller", "ulric", "ulric vane", "miller")],
        [(24, "no_answer")],
    ),
    "triviaqa-hub": Format(
        "triviaqa",
        "trivia.jsonl",
        lines(
            {
                "question": "Who built the mill?",
                "question_id": "tc_1",
                "answer": {"aliases": ["Vane"], "normalized_aliases": ["vane"], "value": "Ulric"},
            }
        ),
        [("Ulric", "Vane", "vane")],
    ),
    "mlqa-es": Format(
        "mlqa-es",
        "dev/dev-context-en-question-es.json",
        _squad(
            {
                "title": "Mills",
                "paragraphs": [
                    {
                        "context": "The mill of Tarn was built in 1850.",
                        "qas": [
                            {
                                "question": "¿Cuándo se construyó?",
                                "answers": [{"text": "1850", "answer_start": 30}],
                                "id": "q1",
                            },
                            {"question": "¿Dónde?", "answers": [], "id": "q2"},
                        ],
                    },
                    {"qas": [{"question": "¿Qué?", "answers": [{"text": "x"}], "id": "q3"}]},
                    {"context": "Nothing is asked."},
                ],
            },
            {
                "title": "Reeds",
                "paragraphs": [
                    {
                        "context": "Reeds grow by the water.",
                        "qas": [{"question": "¿Dónde?", "answers": [{"text": "by the water"}], "id": "q4"}],
                    }
                ],
            },
        ),
        [("1850",), ("by the water",)],
        [(4, "no_answer"), (4, "no_context"), (4, "no_question")],
        ["the question that follows: ¿Cuándo se construyó?"],
    ),
    "mlqa-hub": Format(
        "mlqa-zh",
        "rows.jsonl",
        lines(
            {
                "context": "The mill stands in Tarn.",
                "question": "磨坊在哪里？",
                "answers": {"answer_start": [19], "text": ["Tarn"]},
                "id": "z1",
            }
        ),
        [("Tarn",)],
        [],
        ["磨坊在哪里？"],
    ),
    "small-world": Format(
        "small-world",
        "heldout.jsonl",
        lines(
            {"item_id": "d1", "prompt": "Adding 12 to 30 gives", "answers": ["42"], "tool": "calculator"},
            {"prompt": "Today is", "answers": ["Monday"], "tool": "calendar", "date": "2020-03-16", "group": "date"},
            {"prompt": "x", "answers": ["y"], "tool": "abacus"},
            {"prompt": "x", "answers": ["y"], "date": "March"},
            {"prompt": "x", "answers": []},
            {"answers": ["y"]},
        ),
        [("42",), ("Monday",)],
        [(3, "unknown_tool"), (4, "no_date"), (5, "no_answer"), (6, "no_prompt")],
        ["Adding 12 to 30 gives", "Today is"],
        [None, "2020-03-16"],
    ),
}
