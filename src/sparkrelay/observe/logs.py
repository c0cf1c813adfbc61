"""Logging of a script that runs an instance, set up by one call: lines of text with their time, or JSON lines.

Levels are set by area, because users know what they look for and not which module logs it. The Python workers on
Spark's executors log in the same form, to the executors' standard error.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Area -> its loggers.
AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    "instance": ("sparkrelay.runtime.instance", "sparkrelay.runtime.thread", "sparkrelay.runtime.process"),
    "rebalance": ("sparkrelay.runtime.group", "sparkrelay.consumer.rebalance", "sparkrelay.consumer.group"),
    "batch": ("sparkrelay.runtime.batch",),
    "state": ("sparkrelay.runtime.tasks", "sparkrelay.runtime.slot", "sparkrelay.state"),
    "topics": ("sparkrelay.runtime.topics",),
    "client": ("sparkrelay.client", "sparkrelay.consumer", "kafka"),
    "queries": ("sparkrelay.runtime.queries", "sparkrelay.observe"),
    "spark": ("sparkrelay.runtime.spark", "py4j"),
    "workers": ("sparkrelay.runtime.worker",),
}
#: How workers log; Spark's JVM passes it on to them.
WORKERS_VARIABLE: Final = "SPARKRELAY_WORKER_LOG"
#: PySpark's own, which logs each connection at INFO, and all that is sent to the JVM at DEBUG.
_PY4J: Final = "py4j"
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Attributes of every record; others come from ``extra=``.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, thread, process; exception and extras, if any.

    ``time`` is in RFC 3339 with milliseconds. Values of ``extra=`` keep their names, with the prefix ``extra_`` if a
    name is taken, and become text if JSON has no form for them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds = time.gmtime(record.created)
        entry: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', seconds)}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
            "process": record.process,
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        for name, value in vars(record).items():
            if name not in _USUAL:
                entry[f"extra_{name}" if name in entry else name] = value
        return json.dumps(entry, ensure_ascii=False, default=str)


class _OurHandler(logging.StreamHandler[TextIO]):
    """Recognized by its class in later calls. Without a stream it writes to the current stderr."""

    def __init__(self, stream: TextIO | None, formatter: logging.Formatter) -> None:
        super().__init__(stream)
        self._follows = stream is None
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self._follows:
            self.stream = sys.stderr
        super().emit(record)


def configure_logging(
    *,
    as_json: bool = False,
    level: int | str = "INFO",
    levels: Mapping[str, int | str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Log to standard error; a second call replaces the settings of the first.

    Call it before the Spark session is created, so that Python workers get the settings. They log from WARNING on,
    unless ``levels`` names ``workers``.

    Args:
        as_json: one JSON object a line (:class:`JsonFormatter`); otherwise text, with local time.
        level: of loggers that are not in ``levels``.
        levels: area (a key of :data:`AREAS`) or logger -> level. The longer name wins. ``py4j`` is at WARNING unless
            it, or ``spark``, is named.
        stream: where to write; None for standard error.

    Raises:
        ConfigException: unknown level or area.
    """
    general, chosen = _level("level", level), _loggers(levels or {})
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _OurHandler)]:
        root.removeHandler(handler)
    root.addHandler(_OurHandler(stream, _formatter(as_json)))
    root.setLevel(general)
    for names in AREAS.values():
        for name in names:
            logging.getLogger(name).setLevel(logging.NOTSET)
    for name, number in ({_PY4J: logging.WARNING} | chosen).items():
        logging.getLogger(name).setLevel(number)
    workers = {name: number for name, number in chosen.items() if name.startswith(AREAS["workers"])}
    os.environ[WORKERS_VARIABLE] = json.dumps({"as_json": as_json, "levels": workers})


def configure_worker_logging(environ: Mapping[str, str]) -> None:
    """Have a Python worker log as configured on the driver; without valid settings nothing changes."""
    try:
        given = json.loads(environ[WORKERS_VARIABLE])
        as_json, levels = bool(given["as_json"]), {str(k): int(v) for k, v in given["levels"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    logging.getLogger().addHandler(_OurHandler(None, _formatter(as_json)))
    for name, number in levels.items():
        logging.getLogger(name).setLevel(number)


def _formatter(as_json: bool) -> logging.Formatter:
    return JsonFormatter() if as_json else logging.Formatter(_TEXT)


def _loggers(levels: Mapping[str, int | str]) -> dict[str, int]:
    """Return logger -> level; named loggers follow those of areas, and so win."""
    by_area: dict[str, int] = {}
    by_name: dict[str, int] = {}
    for key, level in levels.items():
        number = _level(f"levels[{key!r}]", level)
        if key in AREAS:
            by_area |= dict.fromkeys(AREAS[key], number)
        elif "." in key or key in logging.root.manager.loggerDict:
            by_name[key] = number
        else:
            near = difflib.get_close_matches(key, AREAS, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigException(
                f"levels: {key!r} is neither an area ({', '.join(AREAS)}) nor the name of a logger{meant}"
            )
    return by_area | by_name


def _level(what: str, level: int | str) -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    name = str(level).upper()
    if name not in _LEVELS:
        raise ConfigException(f"{what}={level!r} is not a level: use one of {', '.join(_LEVELS)}")
    return int(getattr(logging, name))
