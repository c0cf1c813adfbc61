"""``sparkrelay reset``: start an application over. Without ``--execute`` it shows what it would do and does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sparkrelay.cli.command_config import CommandConfig, read_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.instance.reset import ResetPlan, ResetRequest

__all__ = ["reset"]

_BOOTSTRAP_S = 15.0


def reset(
    *,
    application_id: Annotated[str, Parameter(help="The application.id of the application, which must be stopped.")],
    bootstrap_servers: Annotated[
        str, Parameter(name=["--bootstrap-servers", "--bootstrap-server"], help="HOST:PORT of its Kafka.")
    ],
    state_dir: Annotated[
        Path | None, Parameter(help="The instances' state.dir on this host; left out, local state stays.")
    ] = None,
    to: Annotated[
        Literal["earliest", "latest"], Parameter(help="Where source topics are read from then: their start or end.")
    ] = "earliest",
    topics: Annotated[
        str | None, Parameter(help="Source topics to read anew, A,B,...; left out, all that the group has read.")
    ] = None,
    internal_topics: Annotated[
        str | None, Parameter(help="The application's own topics, A,B,...; left out, those that are called so.")
    ] = None,
    command_config: CommandConfig = None,
    execute: Annotated[bool, Parameter(negative="", help="Do it. Without this, it is only shown.")] = False,
) -> int:
    """Start a stopped application over: offsets of its group, its internal topics, its state on this host.

    Run it again if it was interrupted: until it is through, no instance starts. Run it on each host of an instance
    before the first one is started; old state that was forgotten is found and refused by name.
    """
    from sparkrelay.client.config import ClientConfig  # noqa: PLC0415
    from sparkrelay.client.kafka_client import KafkaClient  # noqa: PLC0415
    from sparkrelay.runtime.instance.reset import ResetRequest, Resetter  # noqa: PLC0415

    settings = {**read_properties(command_config), "bootstrap.servers": bootstrap_servers}
    order = ResetRequest(
        application_id=application_id,
        to=to,
        topics=_names(topics),
        internal_topics=_names(internal_topics),
        state_dir=state_dir,
    )
    with KafkaClient(ClientConfig.from_dict(settings)) as client:
        client.bootstrap(_BOOTSTRAP_S)
        resetter = Resetter(client, order)
        plan = resetter.look()
        for line in lines(order, plan):
            print(line)
        resetter.require_possible(plan)
        if not execute:
            print("nothing was changed; add --execute to do it")
            return 0
        resetter.carry_out(lambda step: print(step, flush=True))
    return 0


def lines(order: ResetRequest, plan: ResetPlan) -> Iterator[str]:
    """Yield what is to be done, in words."""
    yield f"application {order.application_id}:"
    if plan.begun:
        yield "  an earlier reset was interrupted; this one goes on from there"
    for at, (before, then) in plan.offsets.items():
        yield f"  {at}: offset {'none' if before is None else before} -> {then} ({order.to})"
    for at, offset in plan.kept.items():
        yield f"  {at}: offset {offset} stays"
    if not plan.offsets:
        yield "  no offsets to set: auto.offset.reset decides where it starts (or name source topics by --topics)"
    for topic in plan.internal_topics:
        doubt = plan.doubtful.get(topic)
        yield f"  topic {topic}: " + ("deleted" if doubt is None else f"not clear whose ({doubt})")
    for directory in plan.directories:
        yield f"  {directory}: removed"
    if order.state_dir is None:
        yield "  local state is not looked at: give --state-dir on each host of an instance"
    if plan.transactional_ids:
        yield f"  transactional ids fenced: {len(plan.transactional_ids)}"


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())
