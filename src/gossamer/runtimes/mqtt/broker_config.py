"""Configuration of a Mosquitto: its listener, who may connect, and who may publish and read what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerTls:
    """Files in PEM format: who signs the certificates of clients, and the broker's own certificate and key.

    With ``whole_subject`` the broker knows clients by all that a certificate's subject says, not by its common name.
    """

    authority: Path
    certificate: Path
    key: Path
    whole_subject: bool = False


_AROUND = 1 << 12
"""Bytes of a packet beside its payload: its topic, of three names of at most 64, and what MQTT adds."""


def access_list(run: str, nodes: Iterable[str], user: Callable[[str], str] = str) -> str:
    """An ACL file: each node reads what is for it, publishes in its own name, and knows who is present.

    Nobody else may do anything. The broker knows a node by its name in its certificate, or as ``user`` calls it.
    """
    return "\n".join(_access(run, node, user(node)) for node in nodes)


def _access(run: str, node: str, user: str) -> str:
    return (
        f"user {user}\n"
        f"topic read gossamer/{run}/to/{node}/from/+\n"
        f"topic write gossamer/{run}/to/+/from/{node}\n"
        f"topic read gossamer/{run}/presence/+\n"
        f"topic write gossamer/{run}/presence/{node}\n"
    )


def mosquitto_config(
    port: int,
    host: str = "",
    tls: ServerTls | None = None,
    access: Path | None = None,
    largest_payload: int = 1 << 20,
    user: str | None = None,
) -> str:
    """A ``mosquitto.conf``. Nothing is kept on disk: what was under way is sent again by the nodes.

    Parameters
    ----------
    port, host : int, str
        Where to listen; no host for everywhere.
    tls : ServerTls, optional
        Refuse clients without a certificate of that authority, and know the others by the name in it.
    access : Path, optional
        The ACL file.
    largest_payload : int
        Most bytes of a payload.
    user : str, optional
        Whom a broker that root starts runs as; ``mosquitto`` if none is named.
    """
    lines = [
        f"listener {port} {host}".rstrip(),
        *([] if user is None else [f"user {user}"]),
        f"allow_anonymous {'false' if tls else 'true'}",
        "persistence false",
        f"max_packet_size {largest_payload + _AROUND}",  # who sends more is disconnected
        # What is on its way to a client that has not taken it, and what waits for one: a limit for a slow one.
        "max_inflight_messages 40",
        "max_queued_messages 4000",
        f"max_queued_bytes {256 << 20}",
        "set_tcp_nodelay true",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "log_type information",
        "log_dest stderr",  # at once, while standard output would come in blocks
    ]
    if tls is not None:
        lines += [
            f"cafile {tls.authority}",
            f"certfile {tls.certificate}",
            f"keyfile {tls.key}",
            "require_certificate true",
            "use_subject_as_username true" if tls.whole_subject else "use_identity_as_username true",
            # Subjects are of one node each, so nobody can end another's connection with its client identifier.
            *(["use_username_as_clientid true"] if tls.whole_subject else []),
            "tls_version tlsv1.2",  # or later
        ]
    if access is not None:
        lines.append(f"acl_file {access}")
    return "\n".join(lines) + "\n"
