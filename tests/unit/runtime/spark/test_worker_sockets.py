"""The folder of Spark's own Unix sockets, as far as no JVM is needed."""

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.runtime.spark.worker_sockets import require_short_folder


def test_a_folder_that_is_too_long_is_refused_with_its_length_and_the_limit():
    require_short_folder("")
    require_short_folder("/" + "x" * 57)
    folder = "/" + "ü" * 40
    with pytest.raises(ConfigException, match=rf"socket\.dir={folder} has 81 bytes, and at most .*Leave it out"):
        require_short_folder(folder)
