"""Options for running a party's node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.bounded import real_path


@dataclass(frozen=True)
class PartyOptions:
    """Options for running a party.

    Attributes
    ----------
    invitation : Path
        The file. What else belongs to it lies in the same folder: ``identity.key``, and for a broker with TLS
        ``ca.crt`` and ``tls.crt``.
    organiser : str, optional
        The organiser's fingerprint, known by another way than the file came; by default those in the policy.
    identity : Path, optional
        The party's private key.
    data, test : Path, optional
        Its training examples (by default where the policy says), and examples to test on.
    data_name : str, optional
        What the policy calls the data; needed where it knows several.
    policy : Path, optional
        The data owner's; needed with data.
    modules : sequence of str
        Code that a spec may have run, beside what the policy allows; see `OwnerPolicy.modules`.
    pretrained : Path, optional
        The model that all parties start from, where there is one; by default ``start.safetensors`` beside the
        invitation.
    store : Path, optional
        The state folder; by default ``state`` beside the invitation.
    resume : bool
        Whether to go on where an earlier process of this node ended.
    believe_store : bool
        Whether to go on even where peers know of more messages than the store.
    connect_timeout : float
        Seconds for which a broker that was never reached is tried.
    wait : float
        Seconds for which a new node waits for its neighbours before it starts.
    gone_after : float
        Seconds of silence after which a peer counts as gone, and is not waited for at the end.
    trace : Path, optional
        File for every event and effect.
    quiet : bool
        Whether the log alone is told what happens.
    """

    invitation: Path
    organiser: str | None = None
    identity: Path | None = None
    data: Path | None = None
    test: Path | None = None
    data_name: str | None = None
    policy: Path | None = None
    modules: Sequence[str] = ()
    pretrained: Path | None = None
    store: Path | None = None
    resume: bool = True
    believe_store: bool = False
    connect_timeout: float = 60.0
    wait: float = 60.0
    gone_after: float = 300.0
    trace: Path | None = None
    quiet: bool = False

    @property
    def folder(self) -> Path:
        """Folder in which the invitation lies."""
        return real_path(self.invitation).parent

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.store or self.folder / "state"

    @property
    def start(self) -> Path:
        """The model that all parties start from, where there is one."""
        return self.pretrained or self.folder / "start.safetensors"

    @property
    def key(self) -> Path:
        """The party's private key."""
        return self.identity or self.folder / "identity.key"
