"""Reads exports with Hugging Face `datasets`, and renders chats with transformers: what most trainers build on."""

import json
from typing import Any

from jobs import answer_jobs


def read(job: dict[str, Any]) -> list[dict[str, Any]]:
    from datasets import load_dataset, load_from_disk

    if job["how"] == "folder":
        return list(load_from_disk(job["file"]))
    if job["how"] == "text":  # which has no rows: its documents are cut at the separator
        document = load_dataset("text", data_files=job["file"], split="train", sample_by="document")[0]["text"]
        return [{"text": text} for text in document.split(job["separator"]) if text]
    mixed = {"on_mixed_types": "use_json"} if job["mixed"] else {}
    return list(load_dataset("json", data_files=job["file"], split="train", **mixed))


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return the rows as they are, or, of chats that are to be rendered, their tokens."""
    rows = read(job)
    if job["how"] != "chat":
        return {"rows": rows}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["tokenizer"])
    out = []
    for row in rows:
        rendered = tokenizer.apply_chat_template(
            row["messages"], tools=json.loads(row["tools"]), return_dict=True, return_assistant_tokens_mask=True
        )
        ids, mask = rendered["input_ids"], rendered["assistant_masks"]
        labels = [token if trained else -100 for token, trained in zip(ids, mask, strict=True)]
        out.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels})
    return {"rows": out}


if __name__ == "__main__":
    answer_jobs("datasets", answer)
