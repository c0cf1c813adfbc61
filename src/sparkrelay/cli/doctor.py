"""``sparkrelay doctor``: check all that an instance needs before it is started, without changing anything."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sparkrelay.cli.options import AsJson, CommandConfig, client_settings, names
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.doctor.findings import Finding

_LONGEST_WAIT = 600.0


def doctor(
    *,
    bootstrap_servers: Annotated[str | None, Parameter(help="HOST:PORT of the application's Kafka.")] = None,
    application_id: Annotated[str | None, Parameter(help="The application.id: its group, topics and state.")] = None,
    command_config: CommandConfig = None,
    sources: Annotated[str | None, Parameter(help="Topics that it reads, A,B,...")] = None,
    sinks: Annotated[str | None, Parameter(help="Topics that it writes, A,B,...")] = None,
    dead_letters: Annotated[str | None, Parameter(help="Its errors.dead.letter.queue.topic.name.")] = None,
    state_dir: Annotated[Path | None, Parameter(help="Its state.dir on this host, if not the default.")] = None,
    ports: Annotated[str | None, Parameter(help="Ports to listen at, N,N,...: metrics.port, ...")] = None,
    timeout: Annotated[float, Parameter(help="Seconds for each request to the brokers.")] = 15.0,
    as_json: AsJson = False,
) -> int:
    """Check this machine, the state directory, the brokers, topics and permissions, with remedies.

    Run it as the user that runs the instance, while none runs on this host. Nothing is changed. Exit codes: 0 nothing
    has failed, 1 something has.
    """
    from sparkrelay.client.config import ClientConfig  # noqa: PLC0415
    from sparkrelay.config import check_application_id  # noqa: PLC0415
    from sparkrelay.doctor.brokers import look_at_brokers  # noqa: PLC0415
    from sparkrelay.doctor.findings import Verdict, as_json as report, as_lines, skip  # noqa: PLC0415
    from sparkrelay.doctor.machine import check_port, look_at_machine  # noqa: PLC0415
    from sparkrelay.doctor.state_directory import look_at_state_directory  # noqa: PLC0415
    from sparkrelay.doctor.topics import Question  # noqa: PLC0415

    if not 0 < timeout <= _LONGEST_WAIT:
        raise ConfigException(f"--timeout {timeout:g}: give more than 0 and at most {_LONGEST_WAIT:g} seconds")
    if bootstrap_servers is None and (sources or sinks or dead_letters or command_config):
        raise ConfigException("topics are checked on a broker: give --bootstrap-servers HOST:PORT")
    if application_id is not None:
        try:
            check_application_id(application_id)
        except ValueError as error:
            raise ConfigException(f"--application-id {application_id!r}: {error}") from None

    checks: list[Iterable[Finding]] = [
        look_at_machine(),
        map(check_port, _ports(ports)),
        look_at_state_directory(state_dir, application_id),
    ]
    if bootstrap_servers is None:
        checks.append([skip("brokers", "no address was given", "Give --bootstrap-servers HOST:PORT")])
    else:
        settings = client_settings(bootstrap_servers, command_config)
        ClientConfig.from_dict(settings)  # to report wrong settings first
        question = Question(application_id, names(sources), names(sinks), dead_letters, timeout)
        checks.append(look_at_brokers(settings, question))
        if application_id is None:
            checks.append([skip("permissions", "no application was named", "Give --application-id NAME")])
    verdicts: set[Verdict] = set()

    def findings() -> Iterator[Finding]:
        for finding in itertools.chain.from_iterable(checks):
            verdicts.add(finding.verdict)
            yield finding

    # Log messages about lost connections are in the report.
    unlogged = logging.NullHandler()
    logging.getLogger("sparkrelay").addHandler(unlogged)
    try:
        if as_json:
            print(json.dumps(report(findings()), indent=2))
        else:
            for line in as_lines(findings()):
                print(line, flush=True)
    finally:
        logging.getLogger("sparkrelay").removeHandler(unlogged)
    return int(Verdict.FAIL in verdicts)


def _ports(text: str | None) -> list[int]:
    numbers = []
    for name in names(text):
        if not name.isdecimal() or not 1 <= int(name) <= 65_535:
            raise ConfigException(f"--ports {name!r}: give numbers from 1 to 65535")
        numbers.append(int(name))
    return numbers
