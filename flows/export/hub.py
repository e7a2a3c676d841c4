"""A push: the files of an export, or of a finetuned model, in a repository of the Hugging Face hub, in one commit.

By the manifest beside the files the next push knows which are an export's; others are never touched without --replace,
and never removed. `huggingface_hub` alone reads HF_TOKEN and HF_ENDPOINT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from flows.export.run import Pushed
from toolformer_core import __version__
from toolformer_core.errors import ToolformerError, UsageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Kind = Literal["dataset", "model"]

MANIFEST = "toolformer.manifest.json"
README = "README.md"
_MADE_BY_HUB = ".gitattributes"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_TOKENS = "https://huggingface.co/settings/tokens"
_DO = {
    401: f"it does not accept the token: set HF_TOKEN to one with write access, from {_TOKENS}",
    403: "the token may not write there: set HF_TOKEN to one with write access to it, or name a repository of your own",
    409: "it was changed meanwhile: run the same command again",
    412: "it was changed meanwhile: run the same command again",
    429: "it has had too many requests: run the same command again later",
}


class PushError(ToolformerError):
    """The hub could not be reached, or refused."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository as it was before a push."""

    name: str  # OWNER/NAME
    kind: Kind
    commit: str | None  # its newest; None: it is missing
    private: bool = True
    exported: frozenset[str] = frozenset()  # of its files, what an earlier push wrote


def look_at(
    name: str, written: Collection[str], kind: Kind = "dataset", *, public: bool = False, replace: bool = False
) -> Repository:
    """Return the state of a repository OWNER/NAME, if files may be pushed there.

    Args:
        written: the names that the files or their folder will have there.
        replace: whether it may hold other files, and files of the same name are replaced.

    Raises:
        UsageError: the name is none, there is no token, or the repository holds other files or is public.
        PushError: the hub could not be reached, or refused.
    """
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if not _NAME.fullmatch(name):
        raise UsageError(f"a repository of the hub is named OWNER/NAME; got {name!r}")
    with _asking(name) as api:
        try:
            info = api.dataset_info(name) if kind == "dataset" else api.model_info(name)
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            return Repository(name, kind, None, private=not public)
        files = frozenset(sibling.rfilename for sibling in info.siblings or ())
        listed = _listed(api, name, kind, info.sha) if MANIFEST in files else None
    if not (info.private or public):
        raise UsageError(f"{name} is public: add --public if all may read this, or name another")
    own = {_MADE_BY_HUB} if listed is None else {_MADE_BY_HUB, README, MANIFEST, *listed}
    others = [file for file in sorted(files - own) if listed is None or file.partition("/")[0] in written]
    if others and not replace:
        shown = ", ".join([*others[:3], *(["..."] if len(others) > 3 else [])])
        raise UsageError(
            f"{name} holds files that this program has not pushed ({shown}): name another repository, or add "
            "--replace, which replaces files of the same name"
        )
    return Repository(name, kind, info.sha, bool(info.private), frozenset(files & own))


def _listed(api: HfApi, name: str, kind: Kind, commit: str | None) -> list[str] | None:
    with TemporaryDirectory() as folder:
        path = api.hf_hub_download(name, MANIFEST, repo_type=kind, revision=commit, local_dir=folder)
        try:
            manifest = json.loads(Path(path).read_text(encoding="utf-8"))
            return [str(file["name"]) for file in manifest["files"]] if manifest["manifest"] else None
        except (ValueError, KeyError, TypeError):
            return None


def push(repository: Repository, uploads: Mapping[str, Path], message: str) -> Pushed:
    """Upload files in one commit, and remove what an earlier push wrote and this one lacks; errors as of `look_at`.

    `uploads` are files by path in the repository, with a manifest that lists them.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    with _asking(repository.name) as api:
        operations: list[Any] = [CommitOperationAdd(name, str(path)) for name, path in uploads.items()]
        operations += map(CommitOperationDelete, sorted(repository.exported - {_MADE_BY_HUB, *uploads}))
        if repository.commit is None:
            api.create_repo(repository.name, repo_type=repository.kind, private=repository.private)
        commit = api.create_commit(
            repository.name,
            operations,
            commit_message=message,
            repo_type=repository.kind,
            parent_commit=repository.commit,  # the hub refuses if somebody has written there meanwhile
        )
        url = f"{api.endpoint}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}"
    return Pushed(repository.name, url, str(commit.oid), repository.private, repository.commit is None)


@contextmanager
def _asking(name: str) -> Iterator[HfApi]:
    """Yield the hub's client, and turn its errors into one line each, without the token."""
    import httpx2
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    token = get_token()
    if token is None:
        raise UsageError(f"a push needs a token of the hub: set HF_TOKEN to one with write access, from {_TOKENS}")
    api = HfApi(token=token, library_name="toolformer-platform", library_version=__version__)
    try:
        yield api
    except OfflineModeIsEnabled:
        raise PushError(
            f"{name} cannot be pushed offline: unset HF_HUB_OFFLINE and run the same command again"
        ) from None
    except HfHubHTTPError as exc:
        status = exc.response.status_code
        why = _DO.get(status) or _line(exc.server_message or exc, token)
        raise PushError(f"{name}: the hub at {api.endpoint} answered {status}; {why}") from None
    except httpx2.HTTPError as exc:
        raise PushError(
            f"{name}: the hub at {api.endpoint} cannot be reached ({_line(exc, token)}): run the same command again"
        ) from None
    except (OSError, RuntimeError, ValueError) as exc:  # of the transfer of large files, or of a refused card
        raise PushError(f"{name} was not pushed ({_line(exc, token)}): run the same command again") from None


def _line(exc: Any, token: str) -> str:
    return next(iter(str(exc).replace(token, "***").strip().splitlines()), type(exc).__name__)
