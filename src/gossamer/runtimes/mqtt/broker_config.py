"""Configuration of a Mosquitto: its listener, who may connect, and who may publish and read what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gossamer.runtimes.mqtt.addresses import topic


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


_ROOM = 1 << 30
"""Bytes that wait in a broker for all its clients together, as long as each has `_LEAST` of them."""
_LEAST, _MOST = 16 << 20, 256 << 20
"""Bytes that may wait for one client: fewer, and a large model comes only by being sent again and again."""
_IN_FLIGHT = 8 << 20
"""Bytes on their way to a client that has not taken them."""


def access_list(run: str, nodes: Iterable[str], user: Callable[[str], str] = str) -> str:
    """An ACL file: each node reads what is for it, and writes to each of the others in its own name.

    Nobody else may do anything, and no topic may be written to that is not named here: a pattern would let a member
    fill the broker with topics of its own making. The broker knows a node by its name in its certificate, or as
    ``user`` calls it.
    """
    names = list(nodes)
    return "\n".join(
        f"user {user(node)}\ntopic read {topic(run, node, '+')}\n"
        + "".join(f"topic write {topic(run, to, node)}\n" for to in names)
        for node in names
    )


def mosquitto_config(
    port: int,
    host: str = "",
    tls: ServerTls | None = None,
    access: Path | None = None,
    largest_payload: int = 1 << 20,
    user: str | None = None,
    members: int | None = None,
) -> str:
    """A ``mosquitto.conf``. Nothing is kept on disk: what was under way is sent again by the nodes.

    What one client can make the broker keep is bounded, and so is all of it together: no client that does not take what
    is sent to it, or sends what nobody takes, leaves the others without room.

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
    members : int, optional
        Number of clients that may be connected, on whom all that the broker keeps is bounded; by default any number.
    """
    room = _MOST if members is None else min(_MOST, max(_LEAST, _ROOM // members))
    lines = [
        f"listener {port} {host}".rstrip(),
        *([] if user is None else [f"user {user}"]),
        f"allow_anonymous {'false' if tls else 'true'}",
        "persistence false",
        f"max_packet_size {largest_payload + _AROUND}",  # who sends more is disconnected
        "max_qos 1",  # who sends with another is disconnected: it would have the broker keep a state for each message
        "retain_available false",  # who sends a message to be kept is disconnected
        "persistent_client_expiration 1h",  # of a session that its client does not come back to
        # What is on its way to a client that has not taken it, and what waits for one: a limit for a slow one.
        "max_inflight_messages 40",
        f"max_inflight_bytes {_IN_FLIGHT}",
        "max_queued_messages 4000",
        f"max_queued_bytes {room}",
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
            # So nobody can end another's connection by its client identifier.
            "use_username_as_clientid true",
            "tls_version tlsv1.2",  # or later
        ]
    if access is not None:
        lines.append(f"acl_file {access}")
    if members is not None:
        lines += [
            # Each once, its new connection beside the old one, and some that have not said yet who they are.
            f"max_connections {2 * members + 64}",
            f"memory_limit {(128 << 20) + members * (room + _IN_FLIGHT)}",
        ]
    return "\n".join(lines) + "\n"
