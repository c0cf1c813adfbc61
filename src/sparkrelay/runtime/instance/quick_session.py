"""``sparkrelay.spark_session``: makes a session, and loads the parts of an instance while its JVM starts."""

from __future__ import annotations

import functools
import logging
import threading
from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@functools.wraps(session.spark_session)
def spark_session(app_name: str, **conf: Any) -> SparkSession:  # noqa: D103 - has that of the wrapped function
    loading = threading.Thread(target=_load_parts, name="sparkrelay-loading", daemon=True)
    loading.start()
    try:
        return session.spark_session(app_name, **conf)
    finally:
        # The JVM takes longer anyway. And the script must not load the same modules at the same time.
        loading.join()


def _load_parts() -> None:
    try:
        import sparkrelay.runtime.instance.parts  # noqa: F401, PLC0415 - heavy
        from sparkrelay.records import compile_missing_kernels  # noqa: PLC0415 - heavy

        compile_missing_kernels()
    except Exception as error:  # noqa: BLE001 - making an instance raises it again
        log.debug("an instance's parts could not be loaded: %s", error)
