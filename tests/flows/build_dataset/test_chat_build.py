"""The option `--chat-template`: what it accepts, what the fingerprint holds, and a small build in a chat."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from tests.support.chat_templates import AS_PLAIN, MARKED, TEMPLATES
from tests.support.small_builds import small_build
from toolformer_core.embedded import MODEL
from toolformer_core.errors import PromptError
from toolformer_core.lm.load import model_digests
from toolformer_core.records import AssistantTurn
from warehouse.queries import rows_of
from warehouse.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A template of the user's."""
    path = tmp_path / "turns.jinja"
    path.write_text(MARKED, encoding="utf-8")
    return path


def test_prompts_are_plain_unless_a_template_is_named(few_documents: Path, tmp_path: Path, file: Path) -> None:
    def asked(**changes: object) -> BuildParameters:
        return small_build(few_documents, tmp_path / "data", **changes)

    plain, chat = (resolve(asked(**given)) for given in ({}, {"chat_template": str(file)}))
    assert (plain.chat_template, chat.chat_template) == ("none", "turns.jinja")
    assert {prompt.turn for prompt in plain.prompts.values()} == {None}
    for key in ("calculator", "calendar"):
        prompt = chat.prompts[key]
        assert prompt.head.startswith("<|turn|>system\n")
        assert prompt.tail == "\nOutput:<|end|>\n<|turn|>assistant\n"
        assert prompt.turn == AssistantTurn(space=False, end="<|end|>")  # a token of the embedded model, too
    assert "--chat-template" not in build_command(asked())
    assert f"--chat-template {file}" in build_command(asked(chat_template=str(file)))


def test_a_model_without_a_template_is_told_with_what_to_do(few_documents: Path, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="no chat template: leave --chat-template out"):
        resolve(small_build(few_documents, tmp_path / "data", chat_template="auto"))
    with pytest.raises(PromptError, match=r"cannot read the chat template autp .* give none, auto or the path"):
        resolve(small_build(few_documents, tmp_path / "data", chat_template="autp"))


def test_the_form_offers_two_names_or_a_whole_path() -> None:
    schema = BuildParameters.model_json_schema()["properties"]["chat_template"]
    assert schema["default"] == "none"
    names, path = schema["anyOf"]
    assert names["enum"] == ["none", "auto"]
    assert path["pattern"] == "^/"


def test_the_models_own_template_is_in_the_prompts_digest_and_in_no_digest_of_the_model(
    few_documents: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    digests, prompts = set(), set()
    for template in (MARKED, TEMPLATES["switched"]):
        (model / "chat_template.jinja").write_text(template, encoding="utf-8")
        asked = small_build(few_documents, tmp_path / "data", model=str(model), chat_template="auto")
        prompts.add(resolve(asked).prompts["calculator"].digest)
        digests.add(model_digests(str(model)))
    assert (len(prompts), len(digests)) == (2, 1)


def test_contents_as_in_a_plain_prompt_give_the_very_build(few_documents: Path, as_built: Path, tmp_path: Path) -> None:
    """The template is other work for `sample`, whose rows are the same to the byte; so all that follows is done."""
    template = tmp_path / "contents.jinja"
    template.write_text(AS_PLAIN, encoding="utf-8")
    plain = small_build(few_documents, as_built)
    chat = plain.model_copy(update={"chat_template": str(template)})
    sampling = [one for one in plan_build(chat).stages if one.stage == "sample"]
    assert [one.because for one in sampling] == [{"prompt": 3}] * 2
    run_build(chat)
    assert {shard.state for shard in plan_build(chat).shards} == {"cached"}
    assert {shard.state for shard in plan_build(plain).shards} == {"cached"}

    store = Store(as_built)
    files = [{file.digest for c in commits for file in c.files} for commits in _sampled(store)]
    assert files[0] == files[1] != set()
    assert len(list(store.commits("score"))) == 2 * 3  # of the first build
    runs = {run.parameters["chat_template"] for run in store.runs()}
    assert runs == {"none", str(template)}
    texts = rows_of(as_built / "warehouse.duckdb", 'SELECT text FROM prompts WHERE "current"')
    assert len(texts) == 2


def _sampled(store: Store) -> list[list[object]]:
    """The commits of `sample` in plain text, and those in a chat, which say so in their config."""
    commits = list(store.commits("sample"))
    chat = [c for c in commits if c.config.get("chat_template") == "contents.jinja"]
    return [[c for c in commits if c not in chat], chat]
