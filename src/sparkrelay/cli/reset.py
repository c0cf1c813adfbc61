"""``sparkrelay reset``: start an application over. Without ``--execute`` it only shows what it would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sparkrelay.cli.options import NOTHING_CHANGED, BootstrapServers, CommandConfig, Execute, connected, names
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.instance.reset import ResetPlan, ResetRequest


def reset(
    *,
    application_id: Annotated[str, Parameter(help="The application.id of the application, which must be stopped.")],
    bootstrap_servers: BootstrapServers,
    state_dir: Annotated[
        Path | None, Parameter(help="The instances' state.dir on this host; default: local state stays.")
    ] = None,
    to: Annotated[
        Literal["earliest", "latest"], Parameter(help="Where source topics are read from then: their start or end.")
    ] = "earliest",
    topics: Annotated[
        str | None,
        # Kafka's own tool calls it --input-topics.
        Parameter(
            name=["--topics", "--input-topics"],
            help="Source topics to read anew, A,B,...; default: all that the group has read.",
        ),
    ] = None,
    internal_topics: Annotated[
        str | None, Parameter(help="The application's own topics, A,B,...; default: found by their names.")
    ] = None,
    command_config: CommandConfig = None,
    execute: Execute = False,
) -> None:
    """Start a stopped application over: offsets of its group, its internal topics, its state on this host.

    Run it again if it was interrupted: no instance starts until it is complete. Run it on each host of an instance
    before the first one is started; old state that was forgotten is detected and refused by name.
    """
    from sparkrelay.runtime.instance.reset import ResetRequest, Resetter  # noqa: PLC0415

    request = ResetRequest(
        application_id=application_id,
        to=to,
        topics=_names("--topics", topics),
        internal_topics=_names("--internal-topics", internal_topics),
        state_dir=state_dir,
    )
    with connected(bootstrap_servers, command_config) as client:
        resetter = Resetter(client, request)
        plan = resetter.look()
        for line in lines(request, plan):
            print(line)
        resetter.require_possible(plan)
        if execute:
            resetter.carry_out(lambda step: print(step, flush=True))
        else:
            print(NOTHING_CHANGED)


def lines(request: ResetRequest, plan: ResetPlan) -> Iterator[str]:
    """Yield what is to be done."""
    yield f"application {request.application_id}:"
    if plan.begun:
        yield "  an earlier reset was interrupted; this one continues it"
    for at, (before, then) in plan.offsets.items():
        yield f"  {at}: offset {'none' if before is None else before} -> {then} ({request.to})"
    for at, offset in plan.kept.items():
        yield f"  {at}: offset {offset} stays"
    if not plan.offsets:
        yield "  no offsets to set: auto.offset.reset decides where it starts (or name source topics by --topics)"
    for topic in plan.internal_topics:
        doubt = plan.doubtful.get(topic)
        yield f"  topic {topic}: " + ("deleted" if doubt is None else f"not clear whose ({doubt})")
    for directory in plan.directories:
        yield f"  {directory}: removed"
    if request.state_dir is None:
        yield "  local state is not looked at: give --state-dir on each host of an instance"
    if plan.transactional_ids:
        yield f"  transactional ids fenced: {len(plan.transactional_ids)}"


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = names(text)
    if not found:
        raise ConfigException(f"{option}={text!r} names no topic: write {option} A,B, or leave it out")
    return found
