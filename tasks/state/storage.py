"""Upload of folders to S3, signed links, and checks of buckets; the only module that imports boto3.

It works with AWS and with servers that speak its protocol (pass their `endpoint`). The network is retried with growing
pauses by botocore. Credentials come from boto3's usual sources (environment, profile, instance); no message of this
module contains one.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from models.base.errors import UserError

ATTEMPTS = 5
"""Tries of each request, the first included; botocore waits up to 20 s between them, doubling from about one."""
LONGEST_LINK = 7 * 24 * 3600
"""Longest validity of a link that the protocol allows, seconds."""
TIMEOUT = 20
"""Seconds to wait for a connection, and for an answer on it."""


@dataclass(frozen=True)
class Keys:
    """Credentials of an S3 server, if they are not those that boto3 finds."""

    access: str
    secret: str = field(repr=False)


def upload_folder(folder: Path, uri: str, endpoint: str | None = None) -> list[str]:
    """Upload every file of a folder, and return the addresses, sorted, each `s3://bucket/prefix/path`.

    Args:
        folder: local folder; its own name is not part of the addresses.
        uri: `s3://bucket` or `s3://bucket/prefix`.
        endpoint: address of a server other than AWS; default: AWS_ENDPOINT_URL.

    Raises:
        UserError: the folder does not exist, the address is malformed, or the server refuses or cannot be reached.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    bucket, prefix = split_uri(uri)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    keys = ["/".join(filter(None, [prefix, path.relative_to(folder).as_posix()])) for path in files]
    with _one_line(uri):
        client = _client(endpoint)
        for path, key in zip(files, keys, strict=True):
            client.upload_file(str(path), bucket, key)
    return [f"s3://{bucket}/{key}" for key in keys]


def signed_links(uri: str, seconds: int, endpoint: str | None = None) -> dict[str, str]:
    """Create links by which anyone can read the files below an address for a while, without keys of their own.

    The links are as sensitive as a key to these files: show them, but do not store them.

    Args:
        uri: `s3://bucket/prefix`.
        seconds: validity of the links; LONGEST_LINK at most.
        endpoint: as in `upload_folder`.

    Returns:
        Path below the prefix -> link, sorted.

    Raises:
        UserError: the server's error, in one line; or the prefix has no files.
    """
    bucket, prefix = split_uri(uri)
    if not 0 < seconds <= LONGEST_LINK:
        raise UserError(f"a signed link is good for 1 to {LONGEST_LINK:,} seconds, not {seconds:,}")
    below = f"{prefix}/" if prefix else ""
    with _one_line(uri):
        client = _client(endpoint)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below)
        keys = sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))
        links = {
            key.removeprefix(below): client.generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=seconds
            )
            for key in keys
        }
    if not links:
        raise UserError(f"{uri}: no files were found")
    return links


def make_bucket(uri: str, endpoint: str | None = None, keys: Keys | None = None) -> bool:
    """Create the bucket of an address if it is missing; return whether it was created.

    Raises:
        UserError: the server's error, in one line.
    """
    from botocore.exceptions import ClientError

    bucket, _ = split_uri(uri)
    with _one_line(uri):
        client = _client(endpoint, keys)
        try:
            client.head_bucket(Bucket=bucket)
        except ClientError as error:
            if str(error.response.get("Error", {}).get("Code")) not in ("404", "NoSuchBucket"):
                raise
        else:
            return False
        region = client.meta.region_name
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        client.create_bucket(Bucket=bucket, **where)
    return True


def health(uri: str, endpoint: str | None = None, keys: Keys | None = None) -> float:
    """Check that the bucket can be read, written and cleaned: put a small object, read it back, remove it.

    Returns:
        Seconds that the check took.

    Raises:
        UserError: the problem, in one line: no such bucket, access denied, no credentials, no connection.
    """
    bucket, prefix = split_uri(uri)
    key = "/".join(filter(None, [prefix, f".rewardflow-health-{uuid.uuid4().hex}"]))
    started = time.monotonic()
    with _one_line(uri):
        client = _client(endpoint, keys)
        client.head_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key=key, Body=key.encode())
        try:
            content = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        finally:
            client.delete_object(Bucket=bucket, Key=key)
    if content != key.encode():
        raise UserError(f"{uri}: the server gave back other bytes than were written")
    return time.monotonic() - started


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of an `s3://` address, the prefix without slashes at its ends.

    Raises:
        UserError: it is not such an address. The message does not repeat an address with a user or password.
    """
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        raise UserError("an s3:// address must not hold credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise UserError(f"{uri}: not an address of the form s3://bucket/prefix")
    return parts.netloc, parts.path.strip("/")


def _client(endpoint: str | None, keys: Keys | None = None) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=TIMEOUT,
        read_timeout=TIMEOUT,
        # Servers other than AWS often refuse the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version="s3v4",  # few servers accept older signatures of links
    )
    given = (keys.access, keys.secret) if keys else (None, None)
    session = boto3.session.Session(*given)
    return session.client("s3", endpoint_url=endpoint, config=config, region_name=_region())


def _region() -> str | None:
    """Return the configured or a default region: only AWS uses it, but a request must be signed with one."""
    import boto3

    return boto3.session.Session().region_name or os.environ.get("AWS_REGION") or "us-east-1"


@contextmanager
def _one_line(uri: str) -> Iterator[None]:
    """Convert exceptions of boto3 to a UserError with the address and the reason, without secrets."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError

    try:
        yield
    except NoCredentialsError as error:
        raise UserError(f"{uri}: no credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)") from error
    except EndpointConnectionError as error:
        raise UserError(f"{uri}: the server cannot be reached") from error
    except ClientError as error:
        raise UserError(f"{uri}: {_code(error.response)}") from error
    except Boto3Error as error:  # upload_file wraps the error of the request
        cause = error.__context__
        reason = _code(cause.response) if isinstance(cause, ClientError) else "the upload failed"
        raise UserError(f"{uri}: {reason}") from error
    except BotoCoreError as error:
        raise UserError(f"{uri}: {type(error).__name__}") from error
    except ValueError as error:  # boto3's error about an invalid endpoint or bucket name
        raise UserError(f"{uri}: the endpoint or the bucket's name is not valid") from error


def _code(response: Any) -> str:
    """Return the server's reason, in words for the common ones."""
    code = str(response.get("Error", {}).get("Code", "unknown error"))
    words = {"404": "no such bucket", "NoSuchBucket": "no such bucket", "403": "access denied"}
    return words.get(code, f"the server refuses ({code})")
