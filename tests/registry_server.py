"""A real schema registry, Apicurio's, which speaks the REST of Confluent's: a child process, all in memory."""

import json
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.doubles.schema_registry import schema_body
from tests.ports import own_port
from tests.waiting import LONG, wait_until

from sparkrelay.devkafka import jars
from sparkrelay.devkafka.folders import locked
from sparkrelay.java import require_java
from sparkrelay.own_files import cache_folder

#: The newest that runs on Java 17.
VERSION = "2.6.13.Final"
_ARTIFACT = "apicurio-registry-app"
_REFERRED_TO = 422
_IVY_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sparkrelay" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="{_ARTIFACT}" rev="{VERSION}" transitive="false" conf="default->*">
      <artifact name="{_ARTIFACT}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class RegistryServer:
    """One that runs. Its ``register``, ``subjects`` and ``schemas`` are those of ``SchemaRegistryDouble``."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def register(self, subject, schema, kind="AVRO", references=()):
        """Add a version of a subject; return the schema's number. References are (name, subject, version)."""
        return self._ask(f"{_path(subject)}/versions", schema_body(schema, kind, references))["id"]

    @property
    def subjects(self):
        """Name -> the numbers of its versions' schemas, in order."""
        return {
            subject: [
                self._ask(f"{_path(subject)}/versions/{version}")["id"]
                for version in self._ask(f"{_path(subject)}/versions")
            ]
            for subject in self._ask("/subjects")
        }

    @property
    def schemas(self):
        """Number -> its body, of those that subjects have."""
        numbers = {number for versions in self.subjects.values() for number in versions}
        return {number: self._ask(f"/schemas/ids/{number}") for number in numbers}

    def clear(self):
        """Forget every subject."""
        subjects = self._ask("/subjects")
        while subjects:
            try:
                for query in ("", "?permanent=true"):
                    self._ask(f"{_path(subjects[0])}{query}", method="DELETE")
            except urllib.error.HTTPError as error:
                # Others refer to it: these first.
                if error.code != _REFERRED_TO or len(subjects) == 1:
                    raise
                subjects.append(subjects[0])
            subjects.pop(0)

    def answers(self):
        """Return whether it is up."""
        try:
            self._ask("/subjects")
        except OSError:
            return False
        return True

    def _ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.msg = f"{error.msg}: {error.read(1000)!r}"
            raise


def _path(subject):
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


@contextmanager
def running_registry():
    """Run a server until the context is left."""
    port = own_port()
    java = [require_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.log.level=WARN"]
    server = RegistryServer(port)
    with tempfile.TemporaryFile() as log:
        command = [*java, *options, "-jar", str(_home() / f"{_ARTIFACT}-{VERSION}-runner.jar")]
        process = subprocess.Popen(command, stdout=log, stderr=log)

        def said():
            log.seek(0)
            return log.read()[-3000:].decode(errors="replace")

        try:
            wait_until(
                lambda: process.poll() is not None or server.answers(), lambda: f"it does not start: {said()}", 240
            )
            assert process.poll() is None, said()
            yield server
        finally:
            process.kill()
            process.wait()


def _home():
    """Return the folder that has it, fetching it the first time (142 MB)."""
    home = cache_folder() / f"apicurio-{VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as folder:
                _fetch(Path(folder))
                (Path(folder) / "home").rename(home)
    return home


def _fetch(work):
    code, output = jars._run_ivy(work, _IVY_MODULE, ("tar.gz",))
    fetched = work / "libs" / f"{_ARTIFACT}-{VERSION}.tar.gz"
    if code or not fetched.is_file():
        # The double goes through the same tests.
        pytest.skip(f"Apicurio {VERSION} cannot be fetched here: {output[-500:]}")
    with tarfile.open(fetched) as archive:
        archive.extractall(work / "home", filter="data")
