"""Datagrams over a bucket of an S3 server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("s3fs", reason="needs the extra s3")

from tests.reference.bucket_server import served

from gossamer.protocol.transports import BrokerUnreachable, TransportSettings
from gossamer.runtimes.object_store.transport import StoreTransport

botocore = pytest.importorskip("botocore.session")

SOON = 20.0


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from served(monkeypatch)


def test_there_and_back(bucket: str) -> None:
    with (
        StoreTransport("run", "a", bucket, poll=0.05) as a,
        StoreTransport("run", "b", bucket, poll=0.05) as b,
    ):
        for number in range(5):
            a.send("b", bytes([number]) * 1000)
        assert [b.receive(SOON) for _ in range(5)] == [("a", bytes([number]) * 1000, (0, 0)) for number in range(5)]
        b.send("a", b"has read")
        assert a.receive(SOON) == ("b", b"has read", (0, 0))
        client = botocore.get_session().create_client("s3")
        for _ in range(200):
            found = client.list_objects_v2(Bucket="ours", Prefix="runs/gossamer/run/to/b/from/a/").get("Contents", [])
            if not found:
                break
        assert found == []
        assert a.counts["not_deleted"] == b.counts["not_deleted"] == 0


def test_a_bucket_that_does_not_exist(bucket: str) -> None:
    with pytest.raises(BrokerUnreachable, match=r"a cannot use the store s3://theirs: .*or the bucket made"):
        StoreTransport("run", "a", "s3://theirs", poll=0.05).open()


def test_without_credentials(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{key}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BrokerUnreachable, match=r"a cannot use the store s3://ours/runs: .*redentials"):
        StoreTransport("run", "a", bucket, TransportSettings(connect_timeout=2.0), poll=0.05).open()
