import logging

from bench.relay_phases import PhaseLog


def test_each_phase_is_reported_once_with_the_time_of_its_line():
    reports = []
    handler = PhaseLog(lambda event, **what: reports.append((event, what["name"], what["at"])))
    logger = logging.getLogger("sparkrelay.runtime.group.assignment_log")
    try:
        before = logging.LogRecord("x", logging.INFO, "", 0, "", None, None).created
        logger.info("%s", "a: generation 1, 1 process: gains 0_0")
        logger.info("%s", "a: generation 2, 2 processes: gives up 0_0")
        logger.info("%s", "nothing of the kind")
    finally:
        handler.detach()
    ((event, name, at),) = reports
    assert (event, name) == ("phase", "assigned")
    assert at >= before
