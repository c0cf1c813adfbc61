"""KafkaStreams: one instance of a pipeline, from start to stop."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StreamsException, TopologyException, WakeupException
from sparkrelay.observe.named_metrics import named_metrics
from sparkrelay.observe.snapshot import InstanceSnapshot
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.instance.console import Console
from sparkrelay.runtime.instance.lifecycle import ALIVE, PENDING_SHUTDOWN, RUNNING, Life, State
from sparkrelay.runtime.instance.plain_errors import plain_errors
from sparkrelay.runtime.instance.queryable import Queryable
from sparkrelay.runtime.instance.starting import Beginning
from sparkrelay.runtime.instance.termination import default_sigterm, exit_on_sigterm, on_termination
from sparkrelay.runtime.spark.session import check_session
from sparkrelay.runtime.thread.stream_thread import ThreadCallbacks
from sparkrelay.runtime.thread.uncaught_exceptions import StreamThreadExceptionResponse, ask_handler
from sparkrelay.settings import MaskedSettings
from sparkrelay.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from sparkrelay.observe.details import InstanceDetails
    from sparkrelay.observe.http_server import HttpServer
    from sparkrelay.runtime.instance.metadata import ThreadMetadata
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.process.processes import DriverProcess, ExecutorProcesses
    from sparkrelay.runtime.tasks.restore_listeners import StandbyUpdateListener, StateRestoreListener
    from sparkrelay.runtime.thread.stream_thread import StreamThread
    from sparkrelay.runtime.thread.uncaught_exceptions import UncaughtExceptionHandler

__all__ = ["KafkaStreams", "State"]

log = logging.getLogger(__name__)

#: A start does not wait long where nothing listens at any address; a broker that restarts meanwhile is back by then.
_REFUSED_SECONDS: Final = 5.0


class KafkaStreams(Queryable):
    """One instance of a pipeline: joins the group of its ``application.id``, takes its share of the tasks, runs them.

    Several instances with the same topology and ``application.id``, on any hosts, share the work; when one dies the
    others take its tasks over.

    Args:
        topology: what to run, from ``StreamsBuilder.build()``.
        config: settings with dotted keys; see ``sparkrelay.config``.
        spark: the session whose executors do the work.
        quiet: True to print nothing. Else a few lines go to stderr, and one a minute, where no logging shows them.

    Raises:
        ConfigException: a setting is unknown, missing or out of range.
        TopologyException: a column does not exist or a step is not possible; names the line that wrote it.
        StreamsException: Java or Spark is too old.
    """

    @plain_errors
    def __init__(
        self, topology: Topology, config: Mapping[str, Any], *, spark: SparkSession, quiet: bool = False
    ) -> None:
        if not isinstance(topology, Topology):
            raise TopologyException(
                f"KafkaStreams runs a Topology, not a {type(topology).__name__}: pass builder.build()"
            )
        # Not with this module: it takes a second, and a script that names this class has no session yet.
        from sparkrelay.runtime.instance import parts  # noqa: PLC0415

        self._config = StreamsConfig.from_dict(config)
        parts.check_client_settings(self._config)
        load = functools.partial(parts.load_assignor, configs=MaskedSettings(config))
        assignor = load(self._config.task_assignor_class)
        # Not of others' assignors, which this one loads where it leads a group whose members differ.
        parts.require_known_settings(assignor, config)
        check_session(spark)
        self._console = Console(self._config.application_id, quiet=quiet, read=self.snapshot)
        self._life = Life(self._config.application_id, self._console.on_state)
        self._progress = ProgressLog(self._config.application_id, state=lambda: self._life.state)
        self._endpoint: HttpServer | None = None
        self._query_server: HttpServer | None = None
        self._stop_asked = False
        #: The start under way.
        self._beginning: Beginning | None = None
        self._exception_handler: UncaughtExceptionHandler | None = None
        self._context = parts.RuntimeContext(
            config=self._config,
            topology=parts.as_configured(topology, self._config),
            assignor=assignor,
            load_assignor=load,
            progress=self._progress,
            callbacks=ThreadCallbacks(
                on_change=self._changed,
                on_failure=self._thread_failed,
                on_unclosed=self._thread_unclosed,
                on_replace=self._replace_thread,
            ),
            show=self._console.show,
        )
        self._spark = spark
        self._console.compiling(self._context.topology)
        self._processes = self._make_processes(spark)
        self._queries = parts.InstanceQueries(
            self._context,
            processes=lambda: self._processes.all,
            state=lambda: self._life.state,
            alive=lambda: self._life.alive,
        )

    # -- life -------------------------------------------------------------------------------------------------------

    @plain_errors
    def start(self) -> None:
        """Join the group and begin; returns once the broker and the topics are found to be in order.

        From now on SIGTERM ends a program whose main thread called this with exit code 143, through its ``with``
        blocks, unless it handles the signal itself or is in :meth:`awaitTermination`.

        Raises:
            TimeoutException: no broker answers.
            UnknownTopicException: a source or sink topic does not exist.
            UnsupportedVersionException: the broker's transactions are too old.
            StateStoreException: ``state.dir`` cannot be used.
            ConfigException: ``metrics.port``, or the port of ``application.server``, is in use.
            StreamsException: the instance was started before.
        """
        beginning = Beginning(self._begin, name=f"{self._config.application_id}-start")
        try:
            exit_on_sigterm(self.stop)
            beginning.run()
        except BaseException:
            # By a signal, whose handler may be the program's own; or by the start itself, which has then been undone.
            if beginning.withdraw():
                self.stop()
            elif not self._life.under_way:
                default_sigterm(self.stop)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current batch, hand the tasks over, leave the group.

        Args:
            timeout: seconds to wait for the end; None waits for ever. In a callback of the instance nobody waits.

        Returns:
            True if the instance has ended within the timeout.
        """
        self._stop_asked = True
        try:
            self._life.ask_to_end()
        finally:
            # Also where the second Ctrl-C breaks off a notification: whoever works here must know of it.
            if (beginning := self._beginning) is not None:
                beginning.break_off()
            self._processes.stop()
        ended = self._wait_for_end(timeout)
        if ended:
            self._close_endpoint()
            default_sigterm(self.stop)
        return ended

    close = stop

    @plain_errors
    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - PySpark's name
        """Wait until the instance has ended, as StreamingQuery's method does.

        On the main thread SIGTERM and Ctrl-C meanwhile stop the instance in good order, as :meth:`stop` does, unless
        the program has a handler of its own for them. Ctrl-C then raises KeyboardInterrupt, so that the script ends;
        a second one does so without waiting for the stop.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            True if it has ended.

        Raises:
            StreamsException: the instance is not started.
            Exception: what ended it, if it failed.
            KeyboardInterrupt: Ctrl-C was pressed; the instance is stopped.
        """
        with on_termination(self.stop):
            ended = self._wait_for_end(timeout)
        if ended:
            default_sigterm(self.stop)
        cause = self._life.cause
        if ended and cause is not None:
            raise cause
        return ended

    def __repr__(self) -> str:
        now = self.snapshot()
        active = sum(len(thread.active_tasks) for thread in now.threads)
        standby = sum(len(thread.standby_tasks) for thread in now.threads)
        return (
            f"<KafkaStreams {now.application_id!r} {now.state}: "
            f"stream threads {len(now.threads)}, active tasks {active}, standby tasks {standby}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Ctrl-C during a stop breaks it off: who pressed it does not want to wait for it once more.
        broken_off = self._stop_asked or self._beginning is not None
        self.stop(0 if kind is KeyboardInterrupt and broken_off else None)

    # -- what users may ask -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR or ERROR."""
        return self._life.state

    @property
    def isActive(self) -> bool:  # noqa: N802 - PySpark's name
        """True while the instance is part of its group."""
        return self._life.alive

    def exception(self) -> Exception | None:
        """Return what ended the instance, or None."""
        return self._life.cause

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """The newest of :attr:`recentProgress`, or None."""
        return self._progress.last

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's name
        """The newest reports, oldest first: one a micro-batch, and while copies are restored some without a batch.

        They have the keys of Spark's StreamingQuery progress.
        """
        return self._progress.recent

    @property
    def status(self) -> str:
        """The state, and what hinders the work right now, if anything does."""
        trouble = self._trouble
        return f"{self.state}: {trouble}" if trouble else self.state

    @property
    def _trouble(self) -> str | None:
        said = (self._processes.blocked, self._processes.trouble, self._progress.status)
        return "; ".join(filter(None, said)) or None

    @property
    def input_lags(self) -> dict[str, int]:
        """Records not yet processed, by input partition of the tasks in service here."""
        return self._progress.input_lags

    @plain_errors
    def describe(self) -> str:
        """Return the topology as ``Topology.describe()`` does, and which way each leg's small micro-batches take.

        A leg's rows pass through one Spark job that stays, or each micro-batch is a Spark job of its own, which costs
        tens of milliseconds; then the reason stands beside it.
        """
        assert self._context.checked is not None, "the constructor builds every leg"
        return f"{self._context.topology.describe()}\n{self._context.checked.describe()}\n"

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """Return each stream thread with its tasks and where they stand."""
        from sparkrelay.runtime.instance.parts import describe_thread  # noqa: PLC0415 - see __init__

        return tuple(
            describe_thread(thread, process, self._config)
            for process in self._processes.all
            for thread in process.threads
        )

    @plain_errors
    def add_stream_thread(self) -> str | None:
        """Start one more stream thread, in a local session (KIP-663).

        It has its legs compiled, joins the group and gets its share of the tasks; the others work on meanwhile. Its
        number is the lowest that is free. Ctrl-C ends the wait for it; it is added all the same.

        Returns:
            Its name, once it is started; None if the instance is not RUNNING or REBALANCING.

        Raises:
            StreamsException: executors of a cluster do the work; says what to do instead.
            KafkaException: the broker does not answer.
        """
        if not self._life.alive:
            log.warning("no stream thread is added: %s is %s", self._config.application_id, self.state)
            return None
        added: list[str | None] = []
        name = f"{self._config.application_id}-add"
        Beginning(lambda _: added.append(self._processes.add_thread()), name=name).run()
        return added[0]

    @plain_errors
    def remove_stream_thread(self, timeout: float | None = None) -> str | None:
        """Have one stream thread leave, in a local session (KIP-663): that of the highest number.

        It ends its micro-batch and leaves the group, whose other members take its tasks over, also if it is a static
        member. The last one may be removed, too: the instance is RUNNING without any then, until it gets another. In
        a callback of the instance it is not the thread that calls, unless that is the last one, and nobody waits: two
        threads that remove each other would do so for ever.

        Args:
            timeout: seconds to wait until it has left; None waits for ever.

        Returns:
            Its name, in a callback while it is about to leave; None if there is no thread to remove, the instance is
            not RUNNING or REBALANCING, or it has not left within the timeout, which it goes on to do.

        Raises:
            StreamsException: executors of a cluster do the work; says what to do instead.
        """
        if not self._life.alive:
            log.warning("no stream thread is removed: %s is %s", self._config.application_id, self.state)
            return None
        thread = self._processes.remove_thread()
        if thread is None:
            log.warning("no stream thread is removed: %s has none", self._config.application_id)
            return None
        if not self._in_callback and not thread.wait(timeout):
            log.warning("%s has not left within %g s; it goes on to do so", thread.name, timeout)
            return None
        return thread.name

    def snapshot(self) -> InstanceSnapshot:
        """Return everything that is published of the instance, as a copy."""
        state, cause = self._life.state, self._life.cause
        alive = state in ALIVE and not self._processes.blocked
        return InstanceSnapshot(
            application_id=self._config.application_id,
            state=state,
            alive=alive,
            ready=alive and state == RUNNING,
            trouble=self._trouble if cause is None else f"{type(cause).__name__}: {cause}",
            threads=self.metadata_for_local_threads(),
            totals=self._progress.counters.totals(),
        )

    def details(self) -> InstanceDetails:
        """Return what the live page shows beside :meth:`snapshot`: settings without secrets, topology, rebalances."""
        from sparkrelay.runtime.instance.parts import page_details  # noqa: PLC0415 - see __init__

        return page_details(self._context, self._processes.all)

    def metrics(self) -> Mapping[str, float]:
        """Return the instance's figures under Kafka Streams' names, where they mean the same.

        Such as ``process-total``, ``commit-latency-avg`` (milliseconds), ``records-lag``, ``dropped-records-total``.
        """
        return named_metrics(self.snapshot())

    @plain_errors
    def clean_up(self) -> None:
        """Remove the application's local state on this host: the next start restores it from the changelogs.

        State on the hosts of executors stays; ``sparkrelay reset`` starts the whole application over.

        Raises:
            StreamsException: this instance runs.
            LockException: another one runs here.
            StateStoreException: ``state.dir`` is not there, or something cannot be removed.
        """
        from sparkrelay.state.home.application_home import ApplicationHome  # noqa: PLC0415 - see __init__

        if self._life.under_way:
            raise StreamsException("clean_up() takes its state away from an instance: call stop() first")
        ApplicationHome.of(self._config.state_dir, self._config.application_id).remove_state()

    def set_state_listener(self, listener: Callable[[State, State], None] | None) -> None:
        """Call ``listener(new, old)`` at each change of state, in order, on a thread of the instance or of a caller."""
        self._life.listener = listener

    def set_global_state_restore_listener(self, listener: StateRestoreListener | None) -> None:
        """Have a listener notified of every store that is restored, from now on; also of those on executors."""
        self._context.listeners.restore = listener

    def set_standby_update_listener(self, listener: StandbyUpdateListener | None) -> None:
        """Have a listener notified of the stores of standby tasks and warm-ups, from now on (KIP-988)."""
        self._context.listeners.standby = listener

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler | None) -> None:
        """Ask ``handler(error)`` what to do when a stream thread dies (KIP-671).

        Args:
            handler: answers ``replace-thread``, ``shutdown-client`` (the default: this instance goes to ERROR) or
                ``shutdown-application`` (all instances do), or a ``StreamThreadExceptionResponse``. It runs on the
                thread that dies.
        """
        self._exception_handler = handler

    def pause(self) -> None:
        """Begin no further micro-batch until :meth:`resume`.

        The one under way ends. The instance stays in its group with its tasks, and copies are kept up to date.
        """
        self._context.paused = True
        for process in self._processes.all:
            process.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._context.paused = False
        for process in self._processes.all:
            process.resume()

    @property
    def is_paused(self) -> bool:
        """True between :meth:`pause` and :meth:`resume`."""
        return self._context.paused

    # -- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, beginning: Beginning) -> None:
        """Start, on a thread where no signal raises anything; where it fails, nothing is left of it."""
        self._life.begin()
        self._beginning = self._context.beginning = beginning
        try:
            self._prepare(beginning)
            began = self._life.begun()
        except BaseException as error:
            stopped = isinstance(error, WakeupException) and self._life.state == PENDING_SHUTDOWN
            self._undo_start(self._life.not_begun)
            if not stopped:
                raise
            return
        finally:
            self._beginning = self._context.beginning = None
        if not began:
            # stop() was called at the last moment.
            self._undo_start(self._life.end)
            return
        try:
            self._processes.start()
        except Exception as error:
            # This computer has no thread left, say. Those that run end in good order, the others at once.
            self._processes_failed(error)
            self._processes.give_up_unstarted()
            self._changed()
            raise

    def _prepare(self, beginning: Beginning) -> None:
        self._console.start(self._description)
        topology = self._context.topology
        if not topology.sink_topics and all(leg.action is None for leg in topology.legs):
            log.warning(
                "%s writes to no topic: what it computes stays in its local state. End a stream or table with "
                '.to("topic")',
                self._config.application_id,
            )
        self._open_endpoint()
        self._look_at_broker(beginning)
        with beginning.breakable(self._processes.stop):
            self._processes.build()

    def _undo_start(self, then: Callable[[], None]) -> None:
        try:
            self._console.close()
            self._close_endpoint()
            self._processes.discard()
        finally:
            then()

    def _make_processes(self, spark: SparkSession) -> DriverProcess | ExecutorProcesses:
        from sparkrelay.runtime.instance.parts import make_processes  # noqa: PLC0415 - see __init__

        return make_processes(spark, self._context, on_change=self._changed, on_failure=self._processes_failed)

    def _open_endpoint(self) -> None:
        if self._config.metrics_port:
            # Importing it takes a tenth of a second, which only those pay who want it.
            from sparkrelay.observe.endpoint import serve  # noqa: PLC0415

            port, host = self._config.metrics_port, self._config.metrics_host
            self._endpoint = serve(self.snapshot, port=port, host=host, details=self.details)
        from sparkrelay.runtime.instance.parts import page_address, serve_queries  # noqa: PLC0415 - see __init__

        self._context.page = page_address(self._config)

        self._query_server = serve_queries(self._queries, self._config)

    def _close_endpoint(self) -> None:
        servers = self._endpoint, self._query_server
        self._endpoint = self._query_server = None
        for server in servers:
            if server is not None:
                server.close()

    @property
    def _description(self) -> str:
        brokers, state = self._config.bootstrap_servers, self._config.state_dir or "the user's state folder"
        return f"brokers {brokers}, state in {state}, standby copies {self._config.num_standby_replicas}"

    @property
    def _threads(self) -> list[StreamThread]:
        return [thread for process in self._processes.all for thread in process.threads]

    def _look_at_broker(self, beginning: Beginning) -> None:
        client = self._context.client("admin")
        try:
            with beginning.breakable(client.interrupt):
                self._context.connect(client, refused_timeout=_REFUSED_SECONDS)
                topics = self._context.topics(client)
                topics.check_broker()
                topics.layout()
                topics.check_source_changelogs()
        finally:
            client.close()

    def _changed(self) -> None:
        if self._processes.tidy():
            if self._life.cause is None or self._stop_asked:
                # What failed by itself says why until somebody stops it.
                self._close_endpoint()
            self._queries.local.close()
            self._life.end()
            return
        threads = self._threads
        alive = [thread for thread in threads if not thread.ended]
        # A process whose threads were all removed waits for nothing (KIP-663); without a process there is something.
        none_left = not threads and bool(self._processes.all)
        self._life.note_tasks(lambda: none_left or (bool(alive) and all(t.running for t in alive)))

    def _thread_failed(self, thread: StreamThread, error: Exception) -> StreamThreadExceptionResponse:
        """A thread that dies takes the instance with it, with the cause - unless it died with its executor."""
        if self._processes.lost(thread, error):
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        response = ask_handler(self._exception_handler, error)
        if response is StreamThreadExceptionResponse.REPLACE_THREAD:
            if self._life.alive and self._process_of(thread).usable:
                log.warning("%s: a new thread takes its place", thread.name)
                return response
            response = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        self._processes_failed(error)
        return response

    def _thread_unclosed(self, thread: StreamThread, error: Exception) -> StreamThreadExceptionResponse:
        """A thread that could not be ended takes the instance with it: what is left of it may go on."""
        if not self._processes.lost(thread, error):
            self._processes_failed(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    def _processes_failed(self, error: Exception) -> None:
        self._progress.counters.error("thread")
        self._life.fail(error)
        self._processes.stop()

    def _process_of(self, thread: StreamThread) -> ProcessThreads:
        return next(process for process in self._processes.all if thread in process.threads)

    def _replace_thread(self, thread: StreamThread) -> None:
        process = self._process_of(thread)
        try:
            process.replace(thread)
        except Exception as error:
            log.exception("%s: no new thread can be made", thread.name)
            self._processes_failed(error)
        if not self._life.alive:
            # It was asked to stop while the new thread was not there yet.
            process.stop()

    @property
    def _in_callback(self) -> bool:
        """True on a thread of the instance: if it waited for another, or for the end, that might wait for it."""
        return self._life.notifying or any(thread.is_current for thread in self._threads)

    def _wait_for_end(self, timeout: float | None) -> bool:
        return self._life.ended if self._in_callback else self._life.wait_for_end(timeout)
