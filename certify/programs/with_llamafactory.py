"""Reads exports with LLaMA-Factory: from `dataset_info.json` to the batches of supervised finetuning.

It is installed without torchaudio, of which there is no build for processors alone beyond torch 2.11. LLaMA-Factory
imports it and uses it for sounds only, so an empty module stands in its place: no line that reads our rows is replaced.
"""

import json
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs import answer_jobs, collated_rows


def without_sounds() -> None:
    """Put an empty torchaudio in the place of the real one."""
    module = ModuleType("torchaudio")
    module.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", module)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    without_sounds()
    from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    with tempfile.TemporaryDirectory() as out:
        (Path(out) / "dataset_info.json").write_text(json.dumps({"cstar": job["dataset_info"]}), encoding="utf-8")
        model_args, data_args, training_args, *_ = get_train_args(
            {
                "model_name_or_path": job["tokenizer"],
                "stage": "sft",
                "do_train": True,
                "dataset": "cstar",
                "dataset_dir": out,
                "template": job["how"],
                "cutoff_len": 8192,  # longer rows would be cut
                "output_dir": f"{out}/out",
                "use_cpu": True,
                "report_to": "none",
            }
        )
        module = load_tokenizer(model_args)
        template = get_template_and_fix_tokenizer(module["tokenizer"], data_args)
        rows = get_dataset(template, model_args, data_args, training_args, stage="sft", **module)["train_dataset"]
        collate = SFTDataCollatorWith4DAttentionMask(template=template, **module)
        return {"rows": collated_rows(rows, collate)}


if __name__ == "__main__":
    answer_jobs("llamafactory", answer)
