"""The permissions (ACLs) that an instance needs, and no more: by resource, name and operation.

A test runs an instance on a broker with Kafka's authorizer and exactly these, and without any one of them. READ, WRITE,
DELETE and ALTER imply DESCRIBE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Access", "needed_access", "permitted"]

#: Kafka's numbers of the operations, as brokers answer them in bit fields (AclOperation).
_OPERATIONS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}


@dataclass(frozen=True, slots=True)
class Access:
    """Operations on one resource, or on all whose names begin so.

    Attributes:
        kind: ``topic``, ``group`` or ``transactional-id``, as ``kafka-acls.sh`` spells its options.
        name: the resource's, or how the names begin.
        prefixed: True for all names that begin so.
        operations: Kafka's names.
    """

    kind: str
    name: str
    prefixed: bool
    operations: tuple[str, ...]

    def command(self, principal: str, bootstrap_servers: str) -> str:
        """Return the command that grants it."""
        granted = " ".join(f"--operation {operation}" for operation in self.operations)
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {bootstrap_servers} --add --allow-principal {principal} {granted} "
            f"--{self.kind} {self.name}{pattern}"
        )


def permitted(answered: object) -> frozenset[str] | None:
    """Return the names of the operations that a broker says are permitted; None if it does not say.

    Args:
        answered: ``authorized_operations`` of a response, which the protocol's library reads as a set of numbers.
    """
    if not isinstance(answered, set | frozenset):
        return None
    return frozenset(name for name, number in _OPERATIONS.items() if number in answered)


def needed_access(
    application_id: str,
    *,
    sources: Collection[str] = (),
    sinks: Collection[str] = (),
    dead_letters: str | None = None,
) -> list[Access]:
    """Return what an instance needs.

    Args:
        application_id: the group, and how the names of its own topics and transactional ids begin.
        sources: topics that it reads.
        sinks: topics that it writes.
        dead_letters: ``errors.dead.letter.queue.topic.name``.
    """
    own = f"{application_id}-"
    written = sorted({*sinks, *(() if dead_letters is None else (dead_letters,))})
    return [
        Access("group", application_id, prefixed=False, operations=("READ",)),
        Access("transactional-id", own, prefixed=True, operations=("WRITE",)),
        # Changelogs are also cut, which deletes records.
        Access("topic", own, prefixed=True, operations=("CREATE", "READ", "WRITE", "DELETE")),
        *(Access("topic", name, prefixed=False, operations=("READ",)) for name in sorted(sources)),
        *(Access("topic", name, prefixed=False, operations=("WRITE",)) for name in written),
    ]
