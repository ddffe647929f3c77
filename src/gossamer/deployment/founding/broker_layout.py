"""Files for the broker's operator: configuration, certificate, and the list of who may do what."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.founding.invitations import Invitation
from gossamer.errors import SpecError
from gossamer.runtimes.mqtt.broker import ServerTls, access_list, mosquitto_config
from gossamer.runtimes.mqtt.certificates import Authority

_NOTE = """\
# For Mosquitto 2.0 or later. Paths are relative to the folder that mosquitto is started in:
#     cd broker && mosquitto -c mosquitto.conf
# A service needs that folder, too: WorkingDirectory= in a unit of systemd, or `env --chdir=DIR mosquitto ...`.
# Started by root it becomes the user mosquitto.
# The user that it runs as must own the files beside this one, and nobody else may read broker.key and acl.
# When acl or certificates have changed, restart it; the parties connect again by themselves.
"""
_NOTE_TLS = """\
# Mosquitto lets every client with a certificate subscribe to everything, and holds back on delivery what acl forbids.
"""

_FEWEST = 8  # members that a broker has room for


def configuration(broker: str, members: int) -> dict[str, bytes]:
    """``mosquitto.conf`` for the broker at a URL, and so many members or somewhat more."""
    members = max(members, _FEWEST)
    parts = urlsplit(broker)
    host, port = host_and_port(parts)
    listen = host if is_loopback(host) else ""
    if not has_tls(broker):
        return {f"{papers.BROKER}/mosquitto.conf": (_NOTE + mosquitto_config(port, listen, members=members)).encode()}
    tls = ServerTls(Path("ca.crt"), Path("broker.crt"), Path("broker.key"))
    text = _NOTE + _NOTE_TLS + mosquitto_config(port, listen, tls, Path("acl"), members=members)
    return {f"{papers.BROKER}/mosquitto.conf": text.encode()}


def for_broker(invitation: Invitation, authority: Authority, certificate: bytes | None = None) -> dict[str, bytes]:
    """A new certificate for the broker, its key unless it has a certificate already, and who may do what there."""
    if certificate is None:
        host, _ = host_and_port(urlsplit(invitation.broker))
        broker = authority.server("broker", [host], invitation.expires)
        made = {papers.BROKER_KEY: broker.key, papers.BROKER_CERTIFICATE: broker.certificate}
    else:
        made = {papers.BROKER_CERTIFICATE: authority.renewed(certificate, invitation.expires)}
    return {
        **made,
        f"{papers.BROKER}/ca.crt": authority.certificate,
        f"{papers.BROKER}/acl": access_list(invitation.run, [m.name for m in invitation.members]).encode(),
    }


def has_tls(broker: str) -> bool:
    """Whether the broker at this URL is reached with TLS."""
    return urlsplit(broker).scheme == "mqtts"


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, and cannot be reached from others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_secrecy(broker: str, insecure: bool) -> None:
    """Raise SpecError if a broker on another machine is to be used without TLS, and nobody said so."""
    host, _ = host_and_port(urlsplit(broker))
    if not has_tls(broker) and not is_loopback(host) and not insecure:
        raise SpecError(
            f"{broker} is another machine and has no TLS, so anybody on the way may cut parties off and see who talks "
            "to whom; say mqtts://, or --insecure to do it all the same"
        )


def host_and_port(parts: SplitResult) -> tuple[str, int]:
    """Host and port of a broker, from an invitation's URL."""
    assert parts.hostname is not None  # an invitation has been checked
    assert parts.port is not None
    return parts.hostname, parts.port
