"""Trust scopes of a run: the nodes that others show what is raw, and who may come to hear what.

A scope is called after its *head*, the node that its members show what is raw. They show it to nobody else, and only a
head that is in the scope itself, such as the server of a federated unit, shows them what it has: one that is not, such
as a server that adds the noise, hears each of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping


def may_hear(trust: Mapping[str, str], sender: str, to: str) -> bool:
    """Whether ``to`` may be sent what is raw of ``sender``.

    Parameters
    ----------
    trust : mapping of str to str
        The scope of each node that is in one.
    sender, to : str
        Nodes.
    """
    head = trust.get(sender)
    return head is not None and (to == head or (sender == head and trust.get(to) == head))


def confidants(trust: Mapping[str, str], name: str) -> frozenset[str]:
    """Nodes that may come to hear what is raw of ``name``, itself included: also by way of others."""
    found, head = {name}, trust.get(name)
    while head is not None and trust.get(head) != head and head not in found:
        found.add(head)
        head = trust.get(head)
    if head is not None and trust.get(head) == head:
        found |= {head, *(other for other, scope in trust.items() if scope == head)}
    return frozenset(found)
