"""An S3 server of our own on this machine, and a bucket there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a folder in a bucket, which this process and its children find by their environment; or a skip."""
    pytest.importorskip("s3fs", reason="needs the extra s3")
    botocore = pytest.importorskip("botocore.session")
    moto = pytest.importorskip("moto.server", reason='needs an S3 server to test with: pip install "moto[server]"')
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    settings = {"ACCESS_KEY_ID": "of us", "SECRET_ACCESS_KEY": "of us", "DEFAULT_REGION": "us-east-1"}
    for key, value in {**settings, "ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(f"AWS_{key}", value)
    botocore.get_session().create_client("s3").create_bucket(Bucket="ours")
    yield "s3://ours/runs"
    server.stop()
