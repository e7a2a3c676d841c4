"""Objects of S3 that are made if there is none of that name: a put with `If-None-Match: *`, which Arrow does not offer.

It needs the package botocore (the extra `s3`). What the bytes are, and what to do without it, is not known here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from warehouse.errors import StoreError

__all__ = ["Create", "creator_of"]

Create = Callable[[str, bytes], bool | None]
"""Makes the object `bucket/key`: True if it was made, False if there is one, None if the server does not know how."""

_TRIES = 5  # while another put of the same object is under way, S3 answers that there is a conflict


def creator_of(url: str, region: str) -> Create | None:
    """Return what makes objects of an S3 URL; None without botocore.

    Args:
        url: as for `pyarrow.fs`, with its keys and its query.
        region: of the bucket.
    """
    if importlib.util.find_spec("botocore") is None:
        return None
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    place: dict[str, Any] = {}
    if server := query.get("endpoint_override"):
        place["endpoint_url"] = f"{query.get('scheme', 'https')}://{server}"
    if parts.username and parts.password:
        place |= {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}
    config = Config(
        s3={"addressing_style": "path"} if server else {},
        request_checksum_calculation="when_required",  # servers other than Amazon's do not all know the newer ones
        response_checksum_validation="when_required",
    )
    client = botocore.session.get_session().create_client("s3", region_name=region, config=config, **place)

    def create(path: str, data: bytes) -> bool | None:
        bucket, _, key = path.partition("/")
        for left in reversed(range(_TRIES)):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
                return True
            except ClientError as exc:
                code = exc.response.get("Error", {}).get("Code", "")
                if code in ("PreconditionFailed", "412"):
                    return False
                if code in ("NotImplemented", "501"):
                    return None
                if code not in ("ConditionalRequestConflict", "409") or not left:
                    raise StoreError(f"cannot write s3://{path}: {exc}") from exc
            except BotoCoreError as exc:
                raise StoreError(f"cannot write s3://{path}: {exc}") from exc
        raise AssertionError  # the last try returns or raises

    return create
