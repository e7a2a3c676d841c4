"""Creating an S3 object only if there is none of that name: a put with `If-None-Match: *`, which Arrow does not offer.

It needs the package botocore (the extra `s3`). This module does not know what the bytes are, or what to do without
botocore.
"""

import importlib.util
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from warehouse.errors import StoreError

CreateObject = Callable[[str, bytes], bool | None]
"""Creates the object `bucket/key`: True if it was created, False if there is one, None if the server cannot do that."""

_TRIES = 5  # S3 answers with a conflict while another put of the same object is in progress


def object_creator(url: str, region: str) -> CreateObject | None:
    """Return a function that creates objects below an S3 URL, with its keys; None if botocore is not installed."""
    if importlib.util.find_spec("botocore") is None:
        return None
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options: dict[str, Any] = {}
    if server := query.get("endpoint_override"):
        options["endpoint_url"] = f"{query.get('scheme', 'https')}://{server}"
    if parts.username and parts.password:
        options |= {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}
    config = Config(
        s3={"addressing_style": "path"} if server else {},
        request_checksum_calculation="when_required",  # not every other server knows Amazon's newer checksums
        response_checksum_validation="when_required",
    )
    client = botocore.session.get_session().create_client("s3", region_name=region, config=config, **options)

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
