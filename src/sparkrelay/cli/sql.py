"""``sparkrelay sql``: run a pipeline that is a file of SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sparkrelay.cli.options import CommandConfig, key_values, read_properties
from sparkrelay.errors import ConfigException


def sql(
    file: Annotated[Path, Parameter(help="The script.")],
    *,
    application_id: Annotated[
        str | None, Parameter(help="The application.id: instances with one share the work.")
    ] = None,
    bootstrap_servers: Annotated[str | None, Parameter(help="HOST:PORT of the application's Kafka.")] = None,
    command_config: CommandConfig = None,
    setting: Annotated[list[str] | None, Parameter(help="KEY=VALUE of an instance's setting; repeatable.")] = None,
    master: Annotated[str, Parameter(help="Where Spark runs, as spark.master.")] = "local[2]",
    until_now: Annotated[
        bool, Parameter(help="End once all that is in the topics now is processed, as a batch job does.")
    ] = False,
    explain: Annotated[bool, Parameter(help="Print what the script would do, and end.")] = False,
) -> None:
    """Run a pipeline that is a file of SQL statements until it is stopped.

    CREATE STREAM and CREATE TABLE name topics, INSERT INTO says where the rows of a query go. The statements are
    described in docs/how-to/sql.md. Run it on several machines: they share the work.
    """
    from sparkrelay import KafkaStreams, StreamsBuilder, spark_session  # noqa: PLC0415 - `--help` needs no Spark
    from sparkrelay.observe.logs import configure_logging  # noqa: PLC0415

    text = _read(file)
    given = {
        **read_properties(command_config),
        **key_values("--setting", setting, example="num.standby.replicas=1"),
        **({} if application_id is None else {"application.id": application_id}),
        **({} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}),
    }
    configure_logging()
    spark = spark_session(given.get("application.id", file.stem), **{"spark.master": master})
    builder = StreamsBuilder(spark, config=given)
    settings = {**builder.script(text, file=str(file)), **given}
    topology = builder.build()
    if explain:
        print(topology.describe())
        return
    for option, key in (("--application-id", "application.id"), ("--bootstrap-servers", "bootstrap.servers")):
        if key not in settings:
            raise ConfigException(f"{option} is missing; SET {key} = ... in the script will do, too")
    KafkaStreams(topology, settings, spark=spark).run(until="now" if until_now else None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigException(f"{file} is not UTF-8 text: {error}") from error
