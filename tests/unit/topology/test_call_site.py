import inspect

from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.call_site import CallSite, find_call_site


def test_it_is_the_line_of_the_caller():
    line = inspect.currentframe().f_lineno + 1
    site = find_call_site()
    assert (site.file, site.line, site.function) == (__file__, line, "test_it_is_the_line_of_the_caller")
    assert str(site) == f"test_call_site.py:{line}"


def test_steps_know_the_users_function_and_not_ours():
    def pipeline(builder):
        builder.stream("a").where("true").to("b")

    builder = StreamsBuilder()
    pipeline(builder)
    (leg,) = builder.build().legs
    (where,) = leg.before[0].rows.written
    sites = {leg.source.call_site, where.call_site, leg.sink.call_site}
    assert sites == {CallSite(__file__, pipeline.__code__.co_firstlineno + 1, "pipeline")}
