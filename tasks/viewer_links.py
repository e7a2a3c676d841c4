"""Where the viewer ($TOOLFORMER_VIEWER) shows a version of C* or an evaluation; a wrong address costs only links."""

import logging
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from tasks.settings import viewer_url
from toolformer_core.errors import UsageError

_log = logging.getLogger(__name__)


def version_page(dataset: str) -> str | None:
    """Return the address of a version's page; None if no viewer is known."""
    return _page(f"documents?version={quote(dataset, safe='')}")


def arm_key(arm: str, k: int, digest: str) -> str:
    return f"{arm}:{k}:{digest[:12]}"


def arms_page(arms: Sequence[str], task: str) -> str | None:
    """Return the address of the page that compares the first and last of some arms (`arm_key`); None: no viewer."""
    return _page(f"models?{urlencode({'a': arms[0], 'b': arms[-1], 'task': task})}") if arms else None


def _page(page: str) -> str | None:
    try:
        root = viewer_url()
    except UsageError as exc:
        _log.warning("there are no links to the viewer: %s", exc)
        return None
    return root and f"{root}/{page}"
