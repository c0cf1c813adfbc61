import os
import threading

import pytest
from tests.other_users import MALLORY, needs_root

from sparkrelay.devkafka.jars import KAFKA_VERSION, kafka_classpath
from sparkrelay.errors import DevKafkaException, JavaException

# Does what Ivy does as far as we look: it puts jars where -retrieve says.
IVY = """
echo run >> "$XDG_CACHE_HOME/runs"
while [ $# -gt 0 ]; do
  if [ "$1" = -retrieve ]; then folder=$(dirname "$2"); fi
  if [ "$1" = -ivy ]; then cp "$2" "$XDG_CACHE_HOME/ivy.xml"; fi
  shift
done
mkdir -p "$folder"
sleep 0.2
echo jar > "$folder/kafka_2.13-VERSION.jar"
""".replace("VERSION", KAFKA_VERSION)


def test_resolved_once_by_many_at_once(fake_java, empty_cache):
    fake_java(IVY)
    found = []
    threads = [threading.Thread(target=lambda: found.append(kafka_classpath())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    libs = empty_cache / f"kafka-{KAFKA_VERSION}"
    assert found == [str(libs / "*")] * 4
    assert (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").exists()
    assert (empty_cache.parent / "runs").read_text().splitlines() == ["run"]
    assert f'rev="{KAFKA_VERSION}"' in (empty_cache.parent / "ivy.xml").read_text()


def test_nothing_is_resolved_when_the_cache_has_it(fake_java, kafka_jars):
    fake_java("exit 9")
    assert KAFKA_VERSION in kafka_classpath()


@pytest.mark.parametrize("artifact", ["kafka-tools", "kafka-streams"])
def test_other_parts_of_kafka_have_a_folder_of_their_own(fake_java, empty_cache, artifact):
    fake_java(IVY.replace("kafka_2.13", artifact))
    assert kafka_classpath(artifact=artifact) == str(empty_cache / f"{artifact}-{KAFKA_VERSION}" / "*")
    assert f'name="{artifact}"' in (empty_cache.parent / "ivy.xml").read_text()


def test_a_failure_leaves_nothing_and_says_what_ivy_said(fake_java, empty_cache):
    fake_java("echo 'UNRESOLVED DEPENDENCY: kafka'; exit 1")
    with pytest.raises(DevKafkaException, match=r"(?s)SPARKRELAY_IVY_SETTINGS.*UNRESOLVED DEPENDENCY: kafka"):
        kafka_classpath()
    assert [path.name for path in empty_cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]

    fake_java(IVY)
    assert kafka_classpath()


def test_an_ivy_that_succeeds_without_a_broker_is_a_failure(fake_java, empty_cache):
    fake_java("exit 0")
    with pytest.raises(DevKafkaException, match="could not be resolved"):
        kafka_classpath()


def test_a_settings_file_is_passed_on(fake_java, empty_cache, monkeypatch):
    fake_java('echo "$@"; exit 1')
    monkeypatch.setenv("SPARKRELAY_IVY_SETTINGS", "/etc/ivy/mirror.xml")
    with pytest.raises(DevKafkaException, match="-settings /etc/ivy/mirror.xml"):
        kafka_classpath()


def test_an_unwritable_cache_is_named(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(DevKafkaException, match="XDG_CACHE_HOME"):
        kafka_classpath()


def test_an_old_java_is_refused_in_one_sentence(fake_java, empty_cache):
    fake_java("exit 0", version='java version "1.8.0_392"')
    with pytest.raises(JavaException, match="Java 8"):
        kafka_classpath()


@needs_root
@pytest.mark.parametrize("folder", [".", f"kafka-{KAFKA_VERSION}"])
def test_jars_that_others_may_have_put_there_are_not_run(fake_java, kafka_jars, empty_cache, folder):
    (empty_cache / folder).chmod(0o777)
    with pytest.raises(DevKafkaException, match=r"mode 0777\) may be written to by others .* Set XDG_CACHE_HOME"):
        kafka_classpath()
    (empty_cache / folder).chmod(0o755)
    os.chown(empty_cache / folder, MALLORY, -1)
    with pytest.raises(DevKafkaException, match=f"owner uid {MALLORY}, mode 0755. belongs to another user"):
        kafka_classpath()


def test_a_lock_that_is_a_link_is_not_followed(fake_java, empty_cache, tmp_path):
    empty_cache.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (empty_cache / f"kafka-{KAFKA_VERSION}.lock").symlink_to(victim)
    fake_java(IVY)
    with pytest.raises(OSError, match="a symbolic link, which is not followed: remove it"):
        kafka_classpath()
    assert victim.read_text() == "precious"
