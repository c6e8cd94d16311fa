"""A store of objects on this host, with the interface of S3."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import fsspec
import pytest

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@contextmanager
def object_store(bucket: str) -> Iterator[None]:
    """Serve an empty bucket, which s3:// means until the block ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        server.start()
        try:
            host, port = server.get_host_and_port()
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            for key in KEYS:
                patch.setenv(key, "test")
            reset = Request(f"http://{host}:{port}/moto-api/reset", method="POST")
            urlopen(reset).close()
            _forget()
            fsspec.filesystem("s3").mkdir(bucket)
            yield
        finally:
            _forget()
            server.stop()


def _forget() -> None:
    """Let the next use of s3:// connect anew."""
    with warnings.catch_warnings(action="ignore"):
        fsspec.get_filesystem_class("s3").clear_instance_cache()
