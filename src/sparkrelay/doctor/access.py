"""The exact permissions (ACLs) that an instance needs, by resource, name and operation.

A test runs an instance on a broker with Kafka's authorizer and exactly these, and without each one of them. READ,
WRITE, DELETE and ALTER imply DESCRIBE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

#: Kafka's numbers of the operations in bit fields (AclOperation).
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
    """Operations on a resource, or on all whose names have a prefix.

    Attributes:
        kind: ``topic``, ``group`` or ``transactional-id``, like the options of ``kafka-acls.sh``.
        name: the resource's name, or the prefix.
        prefixed: whether it is a prefix.
        operations: Kafka's names.
    """

    kind: str
    name: str
    prefixed: bool
    operations: tuple[str, ...]

    def command(self, principal: str, bootstrap_servers: str) -> str:
        """Return the command that grants this access."""
        granted = " ".join(f"--operation {operation}" for operation in self.operations)
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {bootstrap_servers} --add --allow-principal {principal} {granted} "
            f"--{self.kind} {self.name}{pattern}"
        )


def permitted(answered: object) -> frozenset[str] | None:
    """Return the names of the permitted operations; None if the broker does not report them.

    ``answered`` is ``authorized_operations`` of a response, which kafka-python parses as a set of numbers.
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
    """Return what an instance with these topics needs; ``dead_letters`` is its dead letter topic."""
    own = f"{application_id}-"
    written = sorted({*sinks, *(() if dead_letters is None else (dead_letters,))})
    return [
        Access("group", application_id, prefixed=False, operations=("READ",)),
        Access("transactional-id", own, prefixed=True, operations=("WRITE",)),
        # Records of changelogs are also deleted.
        Access("topic", own, prefixed=True, operations=("CREATE", "READ", "WRITE", "DELETE")),
        *(Access("topic", name, prefixed=False, operations=("READ",)) for name in sorted(sources)),
        *(Access("topic", name, prefixed=False, operations=("WRITE",)) for name in written),
    ]
