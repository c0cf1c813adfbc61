"""Settings of Spark sessions that do not live longer than a test run."""

#: They do not earn back what a second compiler costs.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

SHORT_LIVED = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}
