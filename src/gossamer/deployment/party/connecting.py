"""The way to the broker: its address, the files for TLS, and a connection before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from gossamer.deployment.founding.invitations import Invitation
from gossamer.deployment.founding.layout import AUTHORITY, CERTIFICATE
from gossamer.deployment.party.options import PartyOptions
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError
from gossamer.runtimes.mqtt.addresses import BrokerAddress, Tls, TransportSettings
from gossamer.runtimes.mqtt.transport import BrokerUnreachable, MqttTransport

LARGEST_DATAGRAM = 1 << 20
"""Most bytes that the broker has to take."""


@contextmanager
def connected(options: PartyOptions, invitation: Invitation, folder: StateFolder) -> Iterator[MqttTransport]:
    """Be connected to the broker inside.

    Raises
    ------
    BrokerUnreachable
        If there was no connection for as long as it may take; nothing was charged.
    CallerError
        If a file is missing.
    """
    limits = TransportSettings(connect_timeout=options.connect_timeout, largest_datagram=LARGEST_DATAGRAM)
    address = broker_address(options, invitation)
    folder.say(f"connects to {address}")
    transport = MqttTransport(invitation.run, invitation.me.name, address, limits, folder.warn)
    try:
        transport.open()
    except BrokerUnreachable as error:
        store = "the store is as it was" if folder.kept else "no store was left"
        raise BrokerUnreachable(f"{error}; nothing was charged, and {store}") from None
    try:
        yield transport
    finally:
        transport.close()


def broker_address(options: PartyOptions, invitation: Invitation) -> BrokerAddress:
    """Address of the broker, with the files for TLS that lie beside the invitation.

    Raises
    ------
    CallerError
        If a file is missing.
    """
    parts = urlsplit(invitation.broker)
    assert parts.hostname is not None  # an invitation has been checked
    assert parts.port is not None
    if parts.scheme == "mqtt":
        return BrokerAddress(parts.hostname, parts.port)
    authority, certificate = options.folder / AUTHORITY, options.folder / CERTIFICATE
    missing = [str(file) for file in (authority, certificate) if not file.is_file()]
    if missing:
        raise CallerError(
            f"the broker {invitation.broker} wants TLS, and there is no {' and no '.join(missing)}; put what the "
            "organiser handed over beside the invitation"
        )
    # The certificate is for the party's identity.
    return BrokerAddress(parts.hostname, parts.port, Tls(authority, certificate, options.key))
