"""``sparkrelay state``: the tables of an application, out of its changelogs, without Spark and without an instance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from sparkrelay.cli.command_config import BootstrapServers, CommandConfig, read_properties
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from sparkrelay.datasources.table_reader import TableReader

__all__ = ["state"]

NOT_FOUND = 3

state = App(
    name="state",
    help="Read the tables of an application out of its changelogs. No instance need run, and none notices.",
)

ApplicationId = Annotated[str, Parameter(help="The application.id of the application.")]
StoreName = Annotated[str, Parameter(help="The store, as 'sparkrelay state list' calls it.")]


@state.command(name="list")
def list_stores(
    *, application_id: ApplicationId, bootstrap_servers: BootstrapServers, command_config: CommandConfig = None
) -> int:
    """Say which stores the application has, and what they hold.

    Stores without a changelog are not there, nor are tables whose topic is their changelog.
    """
    lines = [("STORE", "TOPIC", "PARTITIONS", "RECORDS", "COLUMNS")]
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        for store, found in reader.stores():
            if found is None:
                columns = "not known: nothing that says it was written yet"
            elif found.layout is None:
                columns = f"none: {found.why_not}"
            else:
                columns = ", ".join(f"{field.name} {field.type}" for field in found.fields)
            lines.append((store.name, store.topic, str(len(store.spans)), f"<= {store.records}", columns))
    widths = [max(len(line[at]) for line in lines) for at in range(4)]
    for line in lines:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]))
    return 0


@state.command
def count(
    store: StoreName,
    *,
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    command_config: CommandConfig = None,
) -> int:
    """Say how many rows a table has."""
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        print(sum(batch.num_rows for batch in reader.rows(reader.table(store))))
    return 0


@state.command
def get(
    store: StoreName,
    *key: Annotated[str, Parameter(help="Values of the key's columns, in their order; all of them or the first ones.")],
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    command_config: CommandConfig = None,
) -> int:
    """Print the rows of a key as JSON, one a line.

    Windows are written as JSON, {"start": "2024-05-01 12:00:00+00:00", "end": ...}. Exit codes: 0 there are some, 3
    there is none.
    """
    from sparkrelay.datasources.table_reader import key_of  # noqa: PLC0415
    from sparkrelay.records.json.writer import columns_to_json  # noqa: PLC0415

    there = False
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        found = reader.table(store)
        for batch in reader.rows(found, key_of(found, key)):
            for line in columns_to_json(batch).to_pylist():
                print(line.decode())
                there = True
    if not there:
        print(f"store {store} has no row with the key {' '.join(key)}", file=sys.stderr)
    return 0 if there else NOT_FOUND


@state.command
def dump(
    store: StoreName,
    *,
    to: Annotated[Path, Parameter(help="The Parquet file to write; it must not exist.")],
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    command_config: CommandConfig = None,
) -> int:
    """Write a table to a Parquet file."""
    from pyarrow import parquet  # noqa: PLC0415

    if to.exists():
        raise ConfigException(f"--to {to} exists already; name another file, or remove it")
    draft, rows = to.with_name(f"{to.name}.part"), 0
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        found = reader.table(store)
        try:
            with parquet.ParquetWriter(draft, found.layout.columns) as writer:
                for batch in reader.rows(found):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            draft.rename(to)
        finally:
            draft.unlink(missing_ok=True)
    print(f"{rows} rows of store {store} are in {to}")
    return 0


def _reader(application_id: str, bootstrap_servers: str, command_config: Path | None) -> TableReader:
    from sparkrelay.datasources.table_reader import TableReader  # noqa: PLC0415

    return TableReader({**read_properties(command_config), "bootstrap.servers": bootstrap_servers}, application_id)
