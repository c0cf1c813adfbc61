"""The folder of Spark's own Unix sockets, as far as no JVM is needed."""

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.runtime.spark.worker_sockets import jvms_sockets_too_long, require_short_folder


def test_a_folder_that_is_too_long_is_refused_with_its_length_and_the_limit():
    require_short_folder("")
    require_short_folder("/" + "x" * 57)
    folder = "/" + "ü" * 40
    with pytest.raises(ConfigException, match=rf"socket\.dir={folder} has 81 bytes, but at most .*Leave it out"):
        require_short_folder(folder)


ENCRYPTED_YARN = {"spark.master": "yarn", "spark.io.encryption.enabled": "true"}


@pytest.mark.parametrize(
    ("changed", "too_long"),
    [
        ({}, True),
        ({"spark.io.encryption.enabled": "false"}, False),
        ({"spark.master": "k8s://https://host"}, False),
        ({"spark.python.unix.domain.socket.dir": "/tmp"}, False),
    ],
)
def test_executors_make_unix_sockets_where_broadcasts_are_encrypted(changed, too_long):
    assert jvms_sockets_too_long(ENCRYPTED_YARN | changed) is too_long
