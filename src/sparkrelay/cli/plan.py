"""``sparkrelay plan``: what would move if instances joined or left, and how long until all is warm.

Nothing is changed: the group is read from the broker or a file, and its assignor runs on a copy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sparkrelay.cli.options import (
    AsJson,
    AssignorSettings,
    CommandConfig,
    assignor_settings,
    client_settings,
    import_from_current_folder,
)
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException, SparkRelayError
from sparkrelay.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment import ApplicationState
    from sparkrelay.planning.what_if import GroupSnapshot

#: Default restore rate of a process, records a second. Measured: 400,000 small records of 4 tasks in 4.4 s on two
#: shared cores, including opening the stores and starting Spark's jobs. A store alone takes 750,000 a second.
_RESTORE_RATE = 90_000.0
_WRONG_USAGE = 2
_MOST_JOINING = 1000
_LEAST_LAG = -3
#: Width of output that is not a terminal, so that lines are not wrapped.
_PLAIN_WIDTH = 400


_LEAVING = ("an instance that is stopped leaves at once; one that dies is noticed after session.timeout.ms",)


def _if_not_default(name: str) -> str:
    setting = settings_of(StreamsConfig)[name]
    return f"{setting.key}, if not {setting.default}."


def plan(
    *,
    bootstrap_servers: Annotated[str | None, Parameter(help="HOST:PORT of the application's Kafka.")] = None,
    application_id: Annotated[str | None, Parameter(help="The application.id of the running application.")] = None,
    command_config: CommandConfig = None,
    state: Annotated[Path | None, Parameter(help="Read the group from this JSON file instead.")] = None,
    add: Annotated[int, Parameter(help="Number of instances that join.")] = 0,
    remove: Annotated[
        list[str] | None,
        Parameter(help="An instance that leaves: its process id, a prefix of it, or a member id. Repeatable."),
    ] = None,
    threads: Annotated[int, Parameter(help="num.stream.threads of the instances that join.")] = 1,
    standbys: Annotated[int | None, Parameter(help="num.standby.replicas, if not as assigned now.")] = None,
    warm_ups: Annotated[int | None, Parameter(help=_if_not_default("max_warmup_replicas"))] = None,
    acceptable_lag: Annotated[int | None, Parameter(help=_if_not_default("acceptable_recovery_lag"))] = None,
    assignor: Annotated[
        str | None, Parameter(help="The assignor: package.module:Class or file.py:Class; default: the group's own.")
    ] = None,
    assignor_setting: AssignorSettings = None,
    restore_rate: Annotated[float, Parameter(help="Records that one instance restores a second.")] = _RESTORE_RATE,
    as_json: AsJson = False,
) -> int:
    """Show what would happen if instances joined or left: what moves and why, and how long until all is warm.

    Nothing is changed. Exit codes: 0 done, 2 the question cannot be answered.
    """
    from rich.console import Console  # noqa: PLC0415

    from sparkrelay.assignment import load_assignor, require_known_settings  # noqa: PLC0415
    from sparkrelay.assignment.process_ids import find_process, new_process_ids  # noqa: PLC0415
    from sparkrelay.planning.report import Report  # noqa: PLC0415
    from sparkrelay.planning.what_if import moves_by_place, what_if  # noqa: PLC0415

    try:
        _check(add=add, threads=threads, restore_rate=restore_rate)
        configs = {
            "num_standby_replicas": standbys,
            "max_warmup_replicas": warm_ups,
            "acceptable_recovery_lag": acceptable_lag,
        }
        given = {key: value for key, value in configs.items() if value is not None}
        if standbys is not None and standbys < 0:
            raise ConfigException(f"--standbys {standbys}: give 0 or more")
        if state is not None:
            if any(option is not None for option in (bootstrap_servers, application_id, command_config)):
                raise ConfigException(
                    "--state FILE describes a group of its own; leave out --bootstrap-servers, --application-id and "
                    "--command-config"
                )
            title, group = f"the group in {state}", _from_file(state, given)
        elif bootstrap_servers is None or application_id is None:
            raise ConfigException("name a group: --bootstrap-servers HOST:PORT --application-id NAME, or --state FILE")
        else:
            from sparkrelay.planning.live_group import read_group  # noqa: PLC0415

            title = f"application {application_id}"
            group = read_group(client_settings(bootstrap_servers, command_config), application_id, given)
        settings = assignor_settings(assignor_setting)
        import_from_current_folder()
        try:
            decides = load_assignor(assignor or group.assignor, settings)
        except ConfigException as error:
            if assignor is not None:
                raise
            raise ConfigException(
                f"the group's own assignor is not available ({error}); name it by --assignor"
            ) from error
        require_known_settings(decides, settings)
        leaving = {find_process(group.state, name) for name in remove or ()}
        joining = new_process_ids(group.state.clients.keys() - leaving, add)
        outcome = what_if(group.state, decides, add=joining, remove=leaving, threads=threads, ends=group.ends)
        places = None
        if add:
            places = moves_by_place(group.state, decides, count=add, remove=leaving, threads=threads, ends=group.ends)
    except SparkRelayError as error:
        print(f"sparkrelay: {error}", file=sys.stderr)
        return _WRONG_USAGE
    report = Report(
        outcome=outcome,
        title=title,
        joining=tuple(joining),
        tasks=len(group.state.all_tasks),
        restore_rate=restore_rate,
        rate_is_given=restore_rate != _RESTORE_RATE,
        moves=places,
        notes=group.notes + _LEAVING * bool(leaving),
    )
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return 0
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    for part in report.renderables():
        console.print(part)
    return 0


def _check(*, add: int, threads: int, restore_rate: float) -> None:
    if add < 0:
        raise ConfigException(f"--add {add}: give how many instances join, 0 or more; --remove names those that leave")
    if add > _MOST_JOINING:
        raise ConfigException(f"--add {add}: at most {_MOST_JOINING:,} instances can be planned for")
    if threads < 1:
        raise ConfigException(f"--threads {threads}: an instance has at least one thread")
    if not 0 < restore_rate < float("inf"):
        raise ConfigException(f"--restore-rate {restore_rate:g}: give records a second, more than 0")


def _from_file(file: Path, configs: Mapping[str, int]) -> GroupSnapshot:
    from sparkrelay.assignment.leader.cases import application_state, end_offset_sums  # noqa: PLC0415
    from sparkrelay.planning.what_if import GroupSnapshot  # noqa: PLC0415

    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigException(f"--state {file}: {error.strerror}. Name a file that can be read.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigException(f"--state {file} is not JSON: {error}") from error
    try:
        given = given.get("input", given)
        described = application_state({**given, "configs": {**given.get("configs", {}), **configs}})
        ends = end_offset_sums([task for task in given["tasks"] if "end_offset_sum" in task])
    except ConfigException:
        raise  # a setting; it says which
    except KeyError as error:
        raise ConfigException(f"--state {file} lacks {error.args[0]!r}; see docs/plan.md for what it holds") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigException(f"--state {file} does not describe a group: {error}") from error
    _check_values(file, described)
    if not described.clients:
        raise ConfigException(f"--state {file} describes a group without instances")
    return GroupSnapshot(described, ends)


def _check_values(file: Path, state: ApplicationState) -> None:
    """Reject values that are valid JSON but that assignors cannot handle."""
    for process, client in state.clients.items():
        for task, lag in (client.task_lags or {}).items():
            if type(lag) is not int or not _LEAST_LAG <= lag < 1 << 63:
                raise ConfigException(
                    f"--state {file}: lag {lag!r} of task {task} on {process} is not a number of offsets; "
                    "give 0 or more, -2 (it runs there) or -3 (unknown)"
                )
        for key, value in client.client_tags.items():
            if not isinstance(value, str):
                raise ConfigException(f"--state {file}: client tag {key!r} of {process} is {value!r}; give text")
