"""``sparkrelay state``: an application's tables, read from its changelogs, without Spark and without an instance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from sparkrelay.cli.options import ApplicationId, BootstrapServers, CommandConfig, client_settings
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sparkrelay.datasources.tables import TableReader

NOT_FOUND = 3

state = App(
    name="state",
    help="Read the tables of an application from its changelogs. No instance need run, and none is affected.",
)

StoreName = Annotated[str, Parameter(help="The store, as listed by 'sparkrelay state list'.")]


@state.command(name="list")
def list_stores(
    *, application_id: ApplicationId, bootstrap_servers: BootstrapServers, command_config: CommandConfig = None
) -> None:
    """List the application's stores, and what they hold.

    Not listed are stores without a changelog, and tables whose topic is their changelog.
    """
    lines = [("STORE", "TOPIC", "PARTITIONS", "RECORDS", "COLUMNS")]
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        for store, found in reader.stores():
            if found is None:
                columns = "unknown: nothing that describes it was written yet"
            elif found.layout is None:
                columns = f"none: {found.why_not}"
            else:
                columns = ", ".join(f"{field.name} {field.type}" for field in found.fields)
            lines.append((store.name, store.topic, str(len(store.spans)), f"<= {store.records}", columns))
    widths = [max(len(line[at]) for line in lines) for at in range(4)]
    for line in lines:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]))


@state.command
def count(
    store: StoreName,
    *,
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    command_config: CommandConfig = None,
) -> None:
    """Print the number of rows of a table."""
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        print(sum(batch.num_rows for batch in reader.rows(reader.table(store))))


@state.command
def get(
    store: StoreName,
    *key: Annotated[str, Parameter(help="Values of the key's columns, in their order; all of them or the first ones.")],
    application_id: ApplicationId,
    bootstrap_servers: BootstrapServers,
    command_config: CommandConfig = None,
) -> int:
    """Print the rows of a key as JSON, one a line.

    Windows are written as JSON, {"start": "2024-05-01 12:00:00+00:00", "end": ...}. Exit codes: 0 there are rows, 3
    there are none.
    """
    from sparkrelay.datasources.key_values import key_of  # noqa: PLC0415
    from sparkrelay.records.json.writer import columns_to_json  # noqa: PLC0415

    there = False
    with _reader(application_id, bootstrap_servers, command_config) as reader:
        found = reader.table(store)
        for batch in reader.rows(found, key_of(found.layout, key)):
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
) -> None:
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


def _reader(
    application_id: str, bootstrap_servers: str, command_config: Path | None
) -> AbstractContextManager[TableReader]:
    from sparkrelay.datasources.tables import TableReader  # noqa: PLC0415

    return TableReader.open(client_settings(bootstrap_servers, command_config), application_id)
