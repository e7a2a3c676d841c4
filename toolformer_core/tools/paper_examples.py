"""The paper's five tools, shown by example: questions with the inputs that answer them, and one response each.

Grounding puts the examples into the prompt from which a small model writes a call, and takes the mock response where a
tool is to be ranked without being run (GEAR, App. A.3). Plain texts; this module does not know who reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

# Key of a tool -> (question, the call's input that answers it).
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "calculator": (
        ("A baker sold 48 rolls in the morning and 27 in the afternoon. How many rolls did he sell?", "48 + 27"),
        ("Mara had 350 stamps and gave 112 of them to her brother. How many stamps does she have now?", "350 - 112"),
        ("There are 14 boxes with 36 pencils in each. How many pencils are there in all?", "14 * 36"),
        (
            "Two adults and three children pay 81 dollars. They share the bill equally. What does each pay?",
            "81 / (2 + 3)",
        ),
    ),
    "calendar": (
        ("What day of the week is it today?", ""),
        ("What is today's date?", ""),
        ("Which month is it now?", ""),
        ("In which year are we?", ""),
    ),
    "wikisearch": (
        ("How do bees make honey?", "bees making honey"),
        ("What is the port of Rotterdam known for?", "port of Rotterdam"),
        ("I would like to read about the early life of Marie Curie.", "Marie Curie early life"),
        ("Why was the Eiffel Tower built?", "construction of the Eiffel Tower"),
    ),
    "qa": (
        ("Which river flows through Vienna?", "Which river flows through Vienna?"),
        ("Who wrote the novel Emma?", "Who wrote the novel Emma?"),
        ("Tell me when the Suez Canal was opened.", "When was the Suez Canal opened?"),
        ("I need the name of the capital of Peru.", "What is the capital of Peru?"),
    ),
    "mt": (
        ("What does das alte Haus mean in English?", "das alte Haus"),
        ("Translate the French phrase le chat noir into English.", "le chat noir"),
        ("How would you say el caballo blanco in English?", "el caballo blanco"),
        ("The door says benvenuto. What does that mean?", "benvenuto"),
    ),
}

# Key of a tool -> a response as the tool writes it.
MOCK_RESPONSES: Mapping[str, str] = {
    "calculator": "75",
    "calendar": "Today is Thursday, June 12, 2025.",
    "wikisearch": "Honey bee > Food > Honey bees collect nectar from flowers and turn it into honey in their hive.",
    "qa": "Jane Austen",
    "mt": "the old house",
}
