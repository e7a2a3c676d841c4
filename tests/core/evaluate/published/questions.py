"""Question benchmarks as published, and the small world: small made-up files."""

import json

from tests.core.evaluate.published.files import Format, lines


def _squad(*articles: object) -> str:
    return json.dumps({"version": 1.0, "data": list(articles)}, indent=1, ensure_ascii=False)


QUESTIONS = {
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
