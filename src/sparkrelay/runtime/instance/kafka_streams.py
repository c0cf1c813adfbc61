"""KafkaStreams: one instance of a pipeline, from start to stop."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StreamsException, TopologyException, WakeupException
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.instance.console import Console
from sparkrelay.runtime.instance.lifecycle import PENDING_SHUTDOWN, Life, State
from sparkrelay.runtime.instance.observable import Observable
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

    from sparkrelay.observe.http_server import HttpServer
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.tasks.restore_listeners import StandbyUpdateListener, StateRestoreListener
    from sparkrelay.runtime.thread.stream_thread import StreamThread
    from sparkrelay.runtime.thread.uncaught_exceptions import UncaughtExceptionHandler

__all__ = ["KafkaStreams", "State"]

log = logging.getLogger(__name__)

#: How long a start retries refused connections: long enough for a broker that restarts.
_REFUSED_SECONDS: Final = 5.0


class KafkaStreams(Queryable, Observable):
    """One instance of a pipeline: it joins the group of its ``application.id`` and runs its share of the tasks.

    Instances with the same topology and ``application.id``, on any hosts, share the work; when one dies, the others
    take over its tasks.

    Args:
        topology: the pipeline, from ``StreamsBuilder.build()``.
        config: settings with dotted keys; see ``sparkrelay.config``.
        spark: the session whose executors do the work.
        quiet: True to print nothing. Otherwise a few lines, and one a minute, go to stderr unless logging shows them.

    Raises:
        ConfigException: a setting is unknown, missing or out of range.
        TopologyException: a column does not exist or a step is not possible; names the line of the script.
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
        # Imported late: it takes a second, and a script that imports this class has no session yet.
        from sparkrelay.runtime.instance import parts  # noqa: PLC0415

        self._config = StreamsConfig.from_dict(config)
        parts.check_client_settings(self._config)
        load = functools.partial(parts.load_assignor, configs=MaskedSettings(config))
        assignor = load(self._config.task_assignor_class)
        # Not for the other assignors that it loads when it leads a group whose members differ.
        parts.require_known_settings(assignor, config)
        check_session(spark)
        self._console = Console(self._config.application_id, quiet=quiet, read=self.snapshot)
        self._life = Life(self._config.application_id, self._console.on_state)
        self._progress = ProgressLog(self._config.application_id, state=lambda: self._life.state)
        self._servers: list[HttpServer] = []
        self._stop_asked = False
        #: The start under way.
        self._beginning: Beginning | None = None
        self._exception_handler: UncaughtExceptionHandler | None = None
        self._context = parts.RuntimeContext(
            config=self._config,
            topology=parts.as_configured(topology, self._config, sources=True),
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
        self._processes = parts.make_processes(
            spark, self._context, on_change=self._changed, on_failure=self._processes_failed
        )
        self._queries = parts.InstanceQueries(
            self._context,
            processes=lambda: self._processes.all,
            state=lambda: self._life.state,
            alive=lambda: self._life.alive,
        )

    # -- life -------------------------------------------------------------------------------------------------------

    @plain_errors
    def start(self) -> None:
        """Check the broker and the topics, then join the group and begin.

        If the main thread calls this, SIGTERM from now on ends the program with exit code 143, through its ``with``
        blocks, unless the program handles the signal itself or is in :meth:`awaitTermination`.

        Raises:
            TimeoutException: no broker answers.
            UnknownTopicException: a source or sink topic does not exist.
            UnsupportedVersionException: the broker is too old for exactly-once transactions.
            StateStoreException: ``state.dir`` cannot be used.
            ConfigException: ``metrics.port``, or the port of ``application.server``, is in use.
            StreamsException: the instance was started before.
        """
        beginning = Beginning(self._begin, name=f"{self._config.application_id}-start")
        try:
            exit_on_sigterm(self.stop)
            beginning.run()
        except BaseException:
            # A signal, perhaps through the program's own handler; or the start failed, and has been undone.
            if beginning.withdraw():
                self.stop()
            elif not self._life.under_way:
                default_sigterm(self.stop)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current micro-batch, hand the tasks over and leave the group.

        Args:
            timeout: seconds to wait for the end; None waits forever. In a callback of the instance it does not wait.

        Returns:
            True if the instance has ended within the timeout.
        """
        self._stop_asked = True
        try:
            self._life.ask_to_end()
        finally:
            # Even if a second Ctrl-C interrupts a notification, every thread must learn of the stop.
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
        """Wait until the instance has ended, like StreamingQuery's method.

        On the main thread SIGTERM and Ctrl-C then stop the instance in an orderly way, like :meth:`stop`, unless the
        program has its own handlers. Ctrl-C then raises KeyboardInterrupt, so that the script ends; a second one does
        not wait for the stop.

        Args:
            timeout: seconds; None waits forever.

        Returns:
            True if it has ended.

        Raises:
            StreamsException: the instance is not started.
            Exception: the cause, if the instance failed.
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

    @plain_errors
    def run(self, *, until: str | None = None) -> None:
        """Start, wait for the end, and stop.

        Args:
            until: ``"now"`` to end once the group has processed all records that are in the source topics now, like
                ``Trigger.AvailableNow``. The next run goes on where this one has ended: with the same state, and with
                windows that were still open. None: until the instance is stopped.

        Raises:
            StreamsException: the instance was started before.
            Exception: what :meth:`start` and :meth:`awaitTermination` raise.
        """
        if until not in {None, "now"}:
            raise ValueError(f'run() takes until="now", or nothing to run until the instance is stopped, not {until!r}')
        from sparkrelay.runtime.instance.until_now import UntilNow  # noqa: PLC0415 - see __init__

        watch = None if until is None else UntilNow(self._context)
        with self, contextlib.nullcontext() if watch is None else contextlib.closing(watch):
            self.start()
            if watch is not None:
                with on_termination(self.stop):
                    if watch.wait(self._wait_for_end):
                        self._console.say("all that was there at the start is processed")
                        self.stop()
            self.awaitTermination()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Ctrl-C during a stop interrupts it: do not wait again.
        broken_off = self._stop_asked or self._beginning is not None
        self.stop(0 if kind is KeyboardInterrupt and broken_off else None)

    # -- for users --------------------------------------------------------------------------------------------------

    @plain_errors
    def add_stream_thread(self) -> str | None:
        """Start one more stream thread, in a local session (KIP-663).

        The thread gets the lowest free number, joins the group and gets its share of the tasks; the other threads
        continue. Ctrl-C ends the wait, but the thread is still added.

        Returns:
            The name of the started thread; None if the instance is not RUNNING or REBALANCING.

        Raises:
            StreamsException: the session is not local: executors of a cluster do the work.
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
        """Remove the stream thread with the highest number, in a local session (KIP-663).

        The thread finishes its micro-batch and leaves the group, even as a static member; the others take over its
        tasks. Without its last thread the instance stays RUNNING, until one is added. In a callback of the instance,
        the calling thread is removed only if it is the last one, and the call does not wait: two threads that remove
        each other would wait forever.

        Args:
            timeout: seconds to wait until it has left; None waits forever.

        Returns:
            The name of the thread, which in a callback is still leaving; None if there is no thread, the instance is
            not RUNNING or REBALANCING, or the thread has not left within the timeout, but will.

        Raises:
            StreamsException: the session is not local: executors of a cluster do the work.
        """
        if not self._life.alive:
            log.warning("no stream thread is removed: %s is %s", self._config.application_id, self.state)
            return None
        thread = self._processes.remove_thread()
        if thread is None:
            log.warning("no stream thread is removed: %s has none", self._config.application_id)
            return None
        if not self._in_callback and not thread.wait(timeout):
            log.warning("%s has not left within %g s; it still will", thread.name, timeout)
            return None
        return thread.name

    @plain_errors
    def clean_up(self) -> None:
        """Remove the application's local state on this host; the next start restores it from the changelogs.

        State on other hosts stays; ``sparkrelay reset`` resets the whole application.

        Raises:
            StreamsException: this instance runs.
            LockException: another one runs here.
            StateStoreException: ``state.dir`` does not exist, or something cannot be removed.
        """
        from sparkrelay.state.home.application_home import ApplicationHome  # noqa: PLC0415 - see __init__

        if self._life.under_way:
            raise StreamsException("clean_up() removes the state of this instance: call stop() first")
        ApplicationHome.of(self._config.state_dir, self._config.application_id).remove_state()

    def set_state_listener(self, listener: Callable[[State, State], None] | None) -> None:
        """Call ``listener(new, old)`` on each state change, in order, on a thread of the instance or of a caller."""
        self._life.listener = listener

    def set_global_state_restore_listener(self, listener: StateRestoreListener | None) -> None:
        """Notify a listener of every store restored from now on, including those on executors."""
        self._context.listeners.restore = listener

    def set_standby_update_listener(self, listener: StandbyUpdateListener | None) -> None:
        """Notify a listener of the stores of standby tasks and warm-ups from now on (KIP-988)."""
        self._context.listeners.standby = listener

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler | None) -> None:
        """Ask ``handler(error)`` what to do when a stream thread dies (KIP-671).

        Args:
            handler: returns ``replace-thread``, ``shutdown-client`` (the default: this instance goes to ERROR) or
                ``shutdown-application`` (all instances do), or a ``StreamThreadExceptionResponse``. It is called on
                the dying thread.
        """
        self._exception_handler = handler

    def pause(self) -> None:
        """Start no further micro-batch until :meth:`resume`.

        The current one is finished. The instance keeps its tasks and updates its copies.
        """
        self._context.paused = True
        for process in self._processes.all:
            process.pause()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._context.paused = False
        for process in self._processes.all:
            process.resume()

    @property
    def is_paused(self) -> bool:
        """True between :meth:`pause` and :meth:`resume`."""
        return self._context.paused

    # -- internal ---------------------------------------------------------------------------------------------------

    def _begin(self, beginning: Beginning) -> None:
        """Start, on a thread without signal handlers; a failed start is undone."""
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
            # stop() came at the last moment.
            self._undo_start(self._life.end)
            return
        try:
            self._processes.start()
        except Exception as error:
            # For example, the system has no threads left. Running threads end in an orderly way, the others at once.
            self._processes_failed(error)
            self._processes.give_up_unstarted()
            self._changed()
            raise

    def _prepare(self, beginning: Beginning) -> None:
        config, topology = self._config, self._context.topology
        state = config.state_dir or "the user's state folder"
        self._console.start(
            f"brokers {config.bootstrap_servers}, state in {state}, standby copies {config.num_standby_replicas}"
        )
        if not topology.sink_topics and all(leg.action is None for leg in topology.legs):
            log.warning(
                '%s writes to no topic: its results stay in local state. End a stream or table with .to("topic")',
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

    def _open_endpoint(self) -> None:
        if self._config.metrics_port:
            # Imported on demand: it takes a tenth of a second.
            from sparkrelay.observe.endpoint import serve  # noqa: PLC0415

            port, host = self._config.metrics_port, self._config.metrics_host
            self._servers.append(serve(self.snapshot, port=port, host=host, details=self.details))
        from sparkrelay.runtime.instance.parts import page_address, serve_queries  # noqa: PLC0415 - see __init__

        self._context.page = page_address(self._config)
        if (server := serve_queries(self._queries, self._config)) is not None:
            self._servers.append(server)

    def _close_endpoint(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

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
                # A failed instance serves its error until it is stopped.
                self._close_endpoint()
            self._queries.local.close()
            self._life.end()
            return
        threads = self._threads
        alive = [thread for thread in threads if not thread.ended]
        # A process without threads is idle on purpose (KIP-663); no process at all is not.
        none_left = not threads and bool(self._processes.all)
        self._life.note_tasks(lambda: none_left or (bool(alive) and all(t.running for t in alive)))

    def _thread_failed(self, thread: StreamThread, error: Exception) -> StreamThreadExceptionResponse:
        """A dying thread fails the instance, unless the thread was lost with its executor."""
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
        """A thread that could not be ended fails the instance: parts of it may still run."""
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
            log.exception("%s: its replacement could not be started", thread.name)
            self._processes_failed(error)
        if not self._life.alive:
            # A stop came before the new thread was there.
            process.stop()

    @property
    def _in_callback(self) -> bool:
        """True on a thread of the instance, which must not wait for its own end or for other threads."""
        return self._life.notifying or any(thread.is_current for thread in self._threads)

    def _wait_for_end(self, timeout: float | None) -> bool:
        return self._life.ended if self._in_callback else self._life.wait_for_end(timeout)
